/*
 * Drystone for C: ext4 and NILFS2 images in user space.
 *
 * Made by cbindgen from crates/capi; don't edit it. docs/src/guide/c.md has examples.
 *
 * - Calls that return an int or an int64_t return a negative errno value (-ENOENT) when they fail; calls
 *   that return a pointer return NULL. drystone_errno() and drystone_message() then have the number and
 *   the words, for each thread by itself. errno is left alone.
 * - Handles are opaque. Each is closed once, by the function for its kind. A handle that was closed, or that
 *   is of another kind, is found: the call fails with EBADF.
 * - All handles can be used by many threads at once, but for listings and walks, whose entries are valid
 *   until the next call.
 * - A child that fork() made can't use the handles of its parent: calls fail with EBADF. Open images after
 *   the fork.
 * - A program that ends without drystone_close loses what wasn't synced; the image is recovered when it is
 *   opened the next time.
 * - Paths are strings of any bytes but 0, as in the C library; relative ones start at the root of the image.
 *   No pointer may be NULL unless it is said.
 * - Modes are used as they are: there is no umask.
 * - A fault inside the library doesn't cross into the program: the call fails with EIO and says so. The
 *   image should then be closed and checked.
 */

#ifndef DRYSTONE_H
#define DRYSTONE_H

#include <stddef.h>
#include <stdint.h>

/*
 For drystone_chown and drystone_lchown: the owner or the group stays.
 */
#define DRYSTONE_KEEP UINT32_MAX

/*
 For drystone_open: changes nothing, not even to replay the journal, which is replayed in memory.
 */
#define DRYSTONE_READ_ONLY 1

/*
 For drystone_open, with DRYSTONE_READ_ONLY: the journal isn't replayed at all.
 */
#define DRYSTONE_IGNORE_JOURNAL 2

/*
 For drystone_mkfs: replaces what the file or device holds.
 */
#define DRYSTONE_OVERWRITE 1

/*
 For drystone_rename: fails with EEXIST if there is an entry of the new name.
 */
#define DRYSTONE_NO_REPLACE 1

/*
 For drystone_rename: swaps the two.
 */
#define DRYSTONE_EXCHANGE 2

/*
 A listing of a directory.
 */
typedef struct drystone_directory drystone_directory;

/*
 An open file.
 */
typedef struct drystone_file drystone_file;

/*
 An open image, with the rights of a user.
 */
typedef struct drystone_image drystone_image;

/*
 A walk through a tree.
 */
typedef struct drystone_walk drystone_walk;

/*
 A time since 1970.
 */
typedef struct drystone_time {
  /*
   Whole seconds; negative before 1970.
   */
  int64_t seconds;
  /*
   0 to 999999999, always forward.
   */
  uint32_t nanoseconds;
} drystone_time;

/*
 What an entry is: stat.
 */
typedef struct drystone_stat_t {
  /*
   The number of the inode.
   */
  uint64_t inode;
  /*
   Bytes of the content.
   */
  uint64_t size;
  /*
   Space used, in units of 512 bytes.
   */
  uint64_t sectors;
  /*
   Type and permissions, as in st_mode.
   */
  uint32_t mode;
  /*
   Names.
   */
  uint32_t links;
  /*
   The owner.
   */
  uint32_t user;
  /*
   The group.
   */
  uint32_t group;
  /*
   The driver of a device; 0 for anything else.
   */
  uint32_t major;
  /*
   The number of a device for its driver.
   */
  uint32_t minor;
  /*
   The best size for reading and writing.
   */
  uint32_t block_size;
  /*
   Flags, as FS_IOC_GETFLAGS has them.
   */
  uint32_t flags;
  /*
   Last read.
   */
  struct drystone_time accessed;
  /*
   Last change of content.
   */
  struct drystone_time modified;
  /*
   Last change of anything.
   */
  struct drystone_time changed;
  /*
   When it was made; zeros if that isn't recorded.
   */
  struct drystone_time created;
} drystone_stat_t;

/*
 An entry of a directory.
 */
typedef struct drystone_entry {
  /*
   The name, until the next call with this listing.
   */
  const char *name;
  /*
   The number of the inode.
   */
  uint64_t inode;
  /*
   The type, as in st_mode: S_IFREG and so on.
   */
  uint32_t type;
} drystone_entry;

/*
 What a walk came to.
 */
typedef struct drystone_walk_entry {
  /*
   The path: that of the start, with the names below it. Valid until the next call with this walk.
   */
  const char *path;
  /*
   How many directories below the start it is.
   */
  uint32_t depth;
  /*
   What it is. Symbolic links aren't followed.
   */
  struct drystone_stat_t stat;
} drystone_walk_entry;

/*
 Space of an image.
 */
typedef struct drystone_statistics_t {
  /*
   Bytes in a block.
   */
  uint32_t block_size;
  /*
   Bytes in the longest name.
   */
  uint32_t name_length_max;
  /*
   Blocks that files may use.
   */
  uint64_t blocks;
  /*
   Free blocks.
   */
  uint64_t blocks_free;
  /*
   Blocks that are free for users without privileges.
   */
  uint64_t blocks_available;
  /*
   Inodes.
   */
  uint64_t inodes;
  /*
   Free inodes.
   */
  uint64_t inodes_free;
} drystone_statistics_t;

/*
 Is told of a problem: a sentence, whether it is an error (1) or a warning (0), and the `data` that was
 passed with the function.
 */
typedef void (*drystone_problem)(const char *message, int is_error, void *data);

/*
 What was copied.
 */
typedef struct drystone_copy_summary {
  /*
   Regular files, each counted once.
   */
  uint64_t files;
  /*
   Further names of files.
   */
  uint64_t hard_links;
  /*
   Directories.
   */
  uint64_t directories;
  /*
   Symbolic links.
   */
  uint64_t symlinks;
  /*
   Device nodes, pipes and sockets.
   */
  uint64_t special;
  /*
   Content, without holes.
   */
  uint64_t bytes;
  /*
   Device nodes that only root may make.
   */
  uint64_t not_made;
  /*
   Owners, attributes and the like that the target can't hold or the caller may not set.
   */
  uint64_t not_kept;
} drystone_copy_summary;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Says what is at a path. Symbolic links are followed.
 */
int drystone_stat(struct drystone_image *image, const char *path, struct drystone_stat_t *stat);

/*
 Says what is at a path. A symbolic link at its end isn't followed.
 */
int drystone_lstat(struct drystone_image *image, const char *path, struct drystone_stat_t *stat);

/*
 Sets permissions.
 */
int drystone_chmod(struct drystone_image *image, const char *path, uint32_t mode);

/*
 Sets owner and group; DRYSTONE_KEEP leaves one. Symbolic links are followed.
 */
int drystone_chown(struct drystone_image *image, const char *path, uint32_t user, uint32_t group);

/*
 As drystone_chown, of a symbolic link itself.
 */
int drystone_lchown(struct drystone_image *image, const char *path, uint32_t user, uint32_t group);

/*
 Sets when it was last read and last changed; NULL leaves one. Symbolic links are followed.
 */
int drystone_utimens(struct drystone_image *image,
                     const char *path,
                     const struct drystone_time *accessed,
                     const struct drystone_time *modified);

/*
 Cuts a file off, or extends it by a hole.
 */
int drystone_truncate(struct drystone_image *image, const char *path, uint64_t size);

/*
 The value of an extended attribute, by its full name ("user.comment"). Returns its length; ENODATA if there
 is none; ERANGE if the buffer is too small; with a size of 0 only the length.
 */
int64_t drystone_getxattr(struct drystone_image *image,
                          const char *file,
                          const char *name,
                          void *buffer,
                          size_t size);

/*
 Sets an extended attribute.
 */
int drystone_setxattr(struct drystone_image *image,
                      const char *file,
                      const char *name,
                      const void *value,
                      size_t size);

/*
 Removes an extended attribute.
 */
int drystone_removexattr(struct drystone_image *image, const char *file, const char *name);

/*
 The names of all extended attributes, with a 0 behind each. Returns how many bytes these are; the buffer
 is as for drystone_getxattr.
 */
int64_t drystone_listxattr(struct drystone_image *image,
                           const char *file,
                           char *buffer,
                           size_t size);

/*
 Opens a directory to list it: opendir.
 */
struct drystone_directory *drystone_directory_open(struct drystone_image *image, const char *name);

/*
 The next entry, in no order and without "." and "..": readdir. Returns 1, or 0 at the end. After an
 error the listing goes on.
 */
int drystone_directory_next(struct drystone_directory *directory, struct drystone_entry *entry);

/*
 Ends a listing.
 */
int drystone_directory_close(struct drystone_directory *directory);

/*
 Begins a walk from `path` down: first what is at `path` itself, a directory before what is in it, names in
 the order of their bytes. Symbolic links aren't followed.
 */
struct drystone_walk *drystone_walk_open(struct drystone_image *image,
                                         const char *name);

/*
 The next entry. Returns 1, or 0 at the end. After an error, of a directory that can't be read for
 example, the walk goes on.
 */
int drystone_walk_next(struct drystone_walk *walk, struct drystone_walk_entry *entry);

/*
 Leaves out what is in the directory that came last. Does nothing if what came last isn't a directory, or an
 error.
 */
int drystone_walk_skip(struct drystone_walk *walk);

/*
 Ends a walk.
 */
int drystone_walk_close(struct drystone_walk *walk);

/*
 The errno value of the call of this thread that failed last; 0 if none has.
 */
int drystone_errno(void);

/*
 What the call of this thread that failed last tried, where, and why it failed, in English. Valid until
 another call of this thread fails; never NULL.
 */
const char *drystone_message(void);

/*
 Opens a file. The flags are those of open(2): O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC
 and O_APPEND, which need one of the latter two. `mode` is for a file that is made.
 */
struct drystone_file *drystone_file_open(struct drystone_image *image,
                                         const char *name,
                                         int flags,
                                         uint32_t mode);

/*
 Closes a file. Small writes may still wait in memory: drystone_file_sync reports their errors.
 */
int drystone_file_close(struct drystone_file *file);

/*
 Reads at the file's offset, and moves it. Returns how many bytes, at most `size`; 0 at the end. The rest of the
 buffer is cleared; after an error, all of it may be.
 */
int64_t drystone_file_read(struct drystone_file *file,
                           void *buffer,
                           size_t size);

/*
 Reads at an offset. The file's own doesn't move. The rest of the buffer is cleared; after an error, all of it
 may be.
 */
int64_t drystone_file_pread(struct drystone_file *file,
                            void *buffer,
                            size_t size,
                            uint64_t offset);

/*
 Writes at the file's offset, or at the end with O_APPEND, and moves the offset. Returns how many bytes,
 which is fewer than `size` only if there is no more room.
 */
int64_t drystone_file_write(struct drystone_file *file,
                            const void *data,
                            size_t size);

/*
 Writes at an offset, or at the end with O_APPEND. The file's own offset doesn't move.
 */
int64_t drystone_file_pwrite(struct drystone_file *file,
                             const void *data,
                             size_t size,
                             uint64_t offset);

/*
 Moves the file's offset, and returns it: lseek with SEEK_SET, SEEK_CUR or SEEK_END, or with SEEK_DATA or
 SEEK_HOLE to what begins at the given offset or behind it: content that is stored, or a hole, which reads
 as zeros. ENXIO if there is none before the end, where each file has a hole.
 */
int64_t drystone_file_seek(struct drystone_file *file,
                           int64_t offset,
                           int whence);

/*
 Says what an open file is: fstat.
 */
int drystone_file_stat(struct drystone_file *file, struct drystone_stat_t *stat);

/*
 Cuts a file off, or extends it by a hole: ftruncate.
 */
int drystone_file_truncate(struct drystone_file *file, uint64_t size);

/*
 Changes the space behind a range: fallocate, with the FALLOC_FL_ flags of Linux.
 */
int drystone_file_fallocate(struct drystone_file *file, int mode, uint64_t offset, uint64_t length);

/*
 Returns when content and attributes are durable: fsync.
 */
int drystone_file_sync(struct drystone_file *file);

/*
 Returns when the content is durable: fdatasync.
 */
int drystone_file_sync_data(struct drystone_file *file);

/*
 The version of the library, as in "0.1.0".
 */
const char *drystone_version(void);

/*
 Opens an image: a file, a block device, a partition ("disk.img#2") or a checkpoint of NILFS2
 ("disk.img@12"). An image that wasn't closed is recovered. All rights are those of root.
 */
struct drystone_image *drystone_open(const char *name, uint32_t flags);

/*
 Another handle of the same image, for which permissions are checked as for this user. It is closed by
 itself, before the one that it was made from.
 */
struct drystone_image *drystone_as_user(struct drystone_image *image,
                                        uint32_t user,
                                        uint32_t group,
                                        const uint32_t *groups,
                                        size_t groups_count);

/*
 Returns when everything is durable.
 */
int drystone_sync(struct drystone_image *image);

/*
 Makes everything durable, marks the image clean and closes it. Fails with EBUSY, and leaves the image
 open, while a call runs, while a file, a listing or a walk that was opened with this handle is open, and, if the
 handle is that of drystone_open, while one of drystone_as_user is. After any other error the image is closed,
 and is recovered when it is opened the next time.
 */
int drystone_close(struct drystone_image *image);

/*
 Says how much room there is: statvfs.
 */
int drystone_statistics(struct drystone_image *image, struct drystone_statistics_t *statistics);

/*
 Makes an image of this size in a file or on a device, which must be empty or new unless
 DRYSTONE_OVERWRITE is among the flags. `type` is "ext4" or "nilfs2"; NULL is "ext4". `label` may be NULL.
 */
int drystone_mkfs(const char *name,
                  uint64_t size_bytes,
                  const char *type,
                  const char *label,
                  uint32_t flags);

/*
 Looks for errors in an image that isn't open, and changes nothing. Returns how many errors there are.
 `problem` may be NULL.
 */
int64_t drystone_check(const char *name,
                       drystone_problem problem,
                       void *data);

/*
 Makes a directory: mkdir.
 */
int drystone_mkdir(struct drystone_image *image, const char *path, uint32_t mode);

/*
 Makes a directory, and those above it that aren't there: mkdir -p. They get the mode 0777.
 */
int drystone_mkdir_all(struct drystone_image *image, const char *path);

/*
 Makes an entry of the type in `mode`, which may be any but a directory or a symbolic link: mknod. Only
 devices have numbers.
 */
int drystone_mknod(struct drystone_image *image,
                   const char *path,
                   uint32_t mode,
                   uint32_t major,
                   uint32_t minor);

/*
 Makes a symbolic link at `link`: symlink.
 */
int drystone_symlink(struct drystone_image *image, const char *target, const char *link);

/*
 Gives a file one more name: link. Symbolic links aren't followed.
 */
int drystone_link(struct drystone_image *image, const char *original, const char *link);

/*
 Renames: renameat2. The flags are DRYSTONE_NO_REPLACE or DRYSTONE_EXCHANGE, or 0: then a file, or an
 empty directory, that has the new name is replaced.
 */
int drystone_rename(struct drystone_image *image,
                    const char *from,
                    const char *to,
                    uint32_t flags);

/*
 Removes a name of a file: unlink.
 */
int drystone_unlink(struct drystone_image *image, const char *path);

/*
 Removes an empty directory: rmdir.
 */
int drystone_rmdir(struct drystone_image *image, const char *path);

/*
 Removes a directory with everything in it, or a symbolic link itself. A file is ENOTDIR.
 */
int drystone_remove_all(struct drystone_image *image, const char *path);

/*
 The target of a symbolic link, with a 0 at the end. Returns its length; ERANGE if the buffer is too
 small; with a size of 0 only the length.
 */
int64_t drystone_readlink(struct drystone_image *image,
                          const char *link,
                          char *buffer,
                          size_t size);

/*
 The path of an entry from the root, without symbolic links, "." and "..". The buffer is as for
 drystone_readlink.
 */
int64_t drystone_realpath(struct drystone_image *image,
                          const char *name,
                          char *buffer,
                          size_t size);

/*
 Reads a whole file into memory that drystone_free frees. One more byte, a 0, stands behind the content.
 */
int drystone_read_file(struct drystone_image *image,
                       const char *name,
                       void **data,
                       size_t *size);

/*
 Frees what drystone_read_file returned. NULL is nothing to free.
 */
void drystone_free(void *data);

/*
 Makes a file with this content, with the mode 0666, or replaces the content of one.
 */
int drystone_write_file(struct drystone_image *image,
                        const char *path,
                        const void *data,
                        size_t size);

/*
 Copies a file or a tree of this machine into the image, with owners, permissions, times, extended attributes,
 hard links and holes. The file that the image is in is left out of a tree. `summary` may be NULL; after a failure it
 is as it was.
 */
int drystone_copy_in(struct drystone_image *image,
                     const char *from,
                     const char *to,
                     struct drystone_copy_summary *summary);

/*
 Copies a file or a tree of the image to this machine, as drystone_copy_in does. Owners are kept only for
 root.
 */
int drystone_copy_out(struct drystone_image *image,
                      const char *from,
                      const char *to,
                      struct drystone_copy_summary *summary);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DRYSTONE_H */
