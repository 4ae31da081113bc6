/* Calls every function of drystone.h, also with what must fail. Arguments: a folder to work in. With one more
   argument it reads into a buffer that is too small, which AddressSanitizer must find. */
#define _GNU_SOURCE
#include "drystone.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed = 0;

/* The value of an expression, which should be as expected. */
#define IS(expression, expected)                                                                   \
    do {                                                                                           \
        long long found = (long long)(expression), wanted = (long long)(expected);                 \
        if (found != wanted) {                                                                     \
            printf("line %d: %s is %lld, not %lld; last failure: %s\n", __LINE__, #expression,     \
                   found, wanted, drystone_message());                                             \
            failed = 1;                                                                            \
        }                                                                                          \
    } while (0)
#define OK(expression) IS(expression, 0)
/* A call that returns a pointer, and must fail. */
#define NO(expression, code)                                                                       \
    do {                                                                                           \
        IS((expression) == NULL, 1);                                                               \
        IS(drystone_errno(), code);                                                                \
    } while (0)

static void tell(const char *message, int is_error, void *data) {
    int *counts = data;
    IS(strlen(message) > 0, 1);
    counts[is_error]++;
}

static drystone_image *images(const char *name, const char *missing) {
    drystone_image *image, *reader;
    int counts[2] = {0, 0};
    FILE *file;

    IS(drystone_errno(), 0);
    IS(strcmp(drystone_message(), ""), 0);
    IS(strcmp(drystone_version(), VERSION), 0);

    IS(drystone_mkfs(name, 16 << 20, "ext5", NULL, 0), -EINVAL);
    IS(strstr(drystone_message(), "ext5") != NULL, 1);
    IS(drystone_mkfs(NULL, 16 << 20, NULL, NULL, 0), -EINVAL);
    IS(drystone_mkfs(name, 16 << 20, NULL, "\xff", 0), -EINVAL);
    IS(drystone_mkfs(name, 16 << 20, NULL, NULL, 64), -EINVAL);
    OK(drystone_mkfs(name, 256 << 20, "nilfs2", "log", 0));
    OK(drystone_check(name, tell, counts));
    IS(drystone_mkfs(name, 16 << 20, NULL, NULL, 0), -EEXIST);
    OK(drystone_mkfs(name, 16 << 20, "ext4", "data", DRYSTONE_OVERWRITE));

    NO(drystone_open(missing, 0), ENOENT);
    NO(drystone_open(NULL, 0), EINVAL);
    NO(drystone_open(name, 64), EINVAL);
    IS(drystone_check(missing, NULL, NULL), -ENOENT);
    IS(strstr(drystone_message(), "missing.img") != NULL, 1);

    image = drystone_open(name, 0);
    IS(image != NULL, 1);
    NO(drystone_open(name, 0), EBUSY);
    NO(drystone_open(name, DRYSTONE_READ_ONLY), EBUSY);

    /* Damage: the image isn't open. */
    OK(drystone_close(image));
    IS(drystone_close(image), -EBADF);
    IS(drystone_sync(image), -EBADF);
    file = fopen(name, "r+");
    OK(fseek(file, 4096 + 12, SEEK_SET));
    IS(fputc(0xff, file), 0xff);
    OK(fclose(file));
    IS(drystone_check(name, tell, counts) > 0, 1);
    IS(counts[1] > 0, 1);
    IS(drystone_check(name, NULL, NULL) > 0, 1);
    OK(drystone_mkfs(name, 16 << 20, NULL, "data", DRYSTONE_OVERWRITE));

    image = drystone_open(name, DRYSTONE_READ_ONLY | DRYSTONE_IGNORE_JOURNAL);
    IS(drystone_mkdir(image, "/a", 0755), -EROFS);
    reader = drystone_open(name, DRYSTONE_READ_ONLY);
    IS(reader != NULL, 1);
    NO(drystone_open(name, 0), EBUSY);
    OK(drystone_close(reader));
    OK(drystone_close(image));
    return drystone_open(name, 0);
}

static void names(drystone_image *image) {
    char buffer[64];
    drystone_stat_t stat;

    OK(drystone_mkdir(image, "/a", 0775));
    IS(drystone_mkdir(image, "/a", 0775), -EEXIST);
    IS(drystone_mkdir(image, NULL, 0775), -EINVAL);
    OK(drystone_stat(image, "/a", &stat));
    IS(stat.mode, S_IFDIR | 0775);
    OK(drystone_mkdir_all(image, "a/b/c"));
    OK(drystone_mknod(image, "/a/null", S_IFCHR | 0666, 1, 3));
    OK(drystone_stat(image, "/a/null", &stat));
    IS(stat.mode, S_IFCHR | 0666);
    IS(stat.major, 1);
    IS(stat.minor, 3);
    IS(drystone_mknod(image, "/a/x", S_IFDIR | 0666, 0, 0), -EINVAL);
    OK(drystone_mknod(image, "/a/file", S_IFREG | 0640, 0, 0));
    OK(drystone_symlink(image, "file", "/a/link"));
    IS(drystone_symlink(image, NULL, "/a/link2"), -EINVAL);
    OK(drystone_link(image, "/a/file", "/a/second"));
    IS(drystone_link(image, "/a/missing", "/a/third"), -ENOENT);
    OK(drystone_lstat(image, "/a/link", &stat));
    IS(S_ISLNK(stat.mode), 1);
    OK(drystone_stat(image, "/a/link", &stat));
    IS(stat.links, 2);
    IS(drystone_stat(image, "/a/link", NULL), -EINVAL);
    IS(drystone_lstat(image, "/nothing", &stat), -ENOENT);
    IS(strstr(drystone_message(), "/nothing") != NULL, 1);

    IS(drystone_readlink(image, "/a/link", NULL, 0), 4);
    IS(drystone_readlink(image, "/a/link", buffer, 4), -ERANGE);
    IS(drystone_readlink(image, "/a/link", NULL, 5), -EINVAL);
    IS(drystone_readlink(image, "/a/link", buffer, 5), 4);
    IS(strcmp(buffer, "file"), 0);
    IS(drystone_readlink(image, "/a/file", buffer, 5), -EINVAL);
    IS(drystone_realpath(image, "a/b/../link", buffer, sizeof buffer), 7);
    IS(strcmp(buffer, "/a/file"), 0);
    IS(drystone_realpath(image, "/nothing", buffer, sizeof buffer), -ENOENT);

    OK(drystone_rename(image, "/a/second", "/a/third", DRYSTONE_NO_REPLACE));
    IS(drystone_rename(image, "/a/third", "/a/file", DRYSTONE_NO_REPLACE), -EEXIST);
    OK(drystone_rename(image, "/a/link", "/a/third", DRYSTONE_EXCHANGE));
    OK(drystone_lstat(image, "/a/third", &stat));
    IS(S_ISLNK(stat.mode), 1);
    IS(drystone_rename(image, "/a/link", "/a/third", 64), -EINVAL);
    IS(drystone_rename(image, "/a/link", NULL, 0), -EINVAL);
    IS(drystone_rename(image, "/a", "/a/b/c", 0), -EINVAL);
    OK(drystone_unlink(image, "/a/third"));
    IS(drystone_unlink(image, "/a/b"), -EISDIR);
    IS(drystone_rmdir(image, "/a/b"), -ENOTEMPTY);
    OK(drystone_rmdir(image, "/a/b/c"));
    OK(drystone_remove_all(image, "/a/b"));
    IS(drystone_remove_all(image, "/a/b"), -ENOENT);
}

static void attributes(drystone_image *image) {
    char buffer[64];
    drystone_stat_t stat;
    drystone_statistics_t statistics;
    drystone_time before = {-2, 5}, wrong = {0, 1000000000};
    const char *file = "/a/file";

    OK(drystone_chmod(image, file, 04711));
    OK(drystone_chown(image, file, 1000, 2000));
    OK(drystone_chown(image, file, DRYSTONE_KEEP, 2001));
    OK(drystone_utimens(image, file, NULL, &before));
    IS(drystone_utimens(image, file, &wrong, NULL), -EINVAL);
    OK(drystone_truncate(image, file, 100));
    OK(drystone_stat(image, file, &stat));
    IS(stat.mode, S_IFREG | 0711);
    IS(stat.user, 1000);
    IS(stat.group, 2001);
    IS(stat.size, 100);
    IS(drystone_truncate(image, "/a", 100), -EISDIR);
    OK(drystone_utimens(image, file, &before, &before));
    OK(drystone_stat(image, file, &stat));
    IS(stat.modified.seconds, -2);
    IS(stat.accessed.nanoseconds, 5);
    IS(stat.created.seconds > 0, 1);
    OK(drystone_symlink(image, "file", "/a/l"));
    OK(drystone_lchown(image, "/a/l", 7, 8));
    OK(drystone_lstat(image, "/a/l", &stat));
    IS(stat.user, 7);
    IS(drystone_chmod(image, "/nothing", 0), -ENOENT);
    IS(drystone_chown(image, "/nothing", 0, 0), -ENOENT);
    IS(drystone_lchown(image, "/nothing", 0, 0), -ENOENT);

    OK(drystone_setxattr(image, file, "user.k", "value", 5));
    OK(drystone_setxattr(image, file, "user.empty", NULL, 0));
    IS(drystone_setxattr(image, file, "user.k", NULL, 5), -EINVAL);
    IS(drystone_setxattr(image, file, "odd.k", "value", 5), -EOPNOTSUPP);
    IS(drystone_getxattr(image, file, "user.k", NULL, 0), 5);
    IS(drystone_getxattr(image, file, "user.k", buffer, 4), -ERANGE);
    IS(drystone_getxattr(image, file, "user.k", buffer, 5), 5);
    IS(memcmp(buffer, "value", 5), 0);
    IS(drystone_getxattr(image, file, "user.none", buffer, 5), -ENODATA);
    IS(drystone_listxattr(image, file, NULL, 0), 18);
    IS(drystone_listxattr(image, file, buffer, 17), -ERANGE);
    IS(drystone_listxattr(image, file, buffer, sizeof buffer), 18);
    IS(buffer[17], 0);
    IS(drystone_listxattr(image, NULL, buffer, sizeof buffer), -EINVAL);
    OK(drystone_removexattr(image, file, "user.k"));
    IS(drystone_removexattr(image, file, "user.k"), -ENODATA);

    OK(drystone_statistics(image, &statistics));
    IS(statistics.blocks > statistics.blocks_free, 1);
    IS(statistics.blocks_free >= statistics.blocks_available, 1);
    IS(statistics.inodes > statistics.inodes_free, 1);
    IS(statistics.name_length_max, 255);
    IS(drystone_statistics(image, NULL), -EINVAL);
    IS(drystone_statistics((drystone_image *)&statistics, &statistics), -EBADF);
}

static void files(drystone_image *image) {
    char *buffer = malloc(8);
    drystone_stat_t stat;
    drystone_file *file, *log;

    NO(drystone_file_open(image, "/f", O_RDWR, 0), ENOENT);
    NO(drystone_file_open(image, "/f", O_RDONLY | O_CREAT, 0), EINVAL);
    NO(drystone_file_open(image, "/f", O_WRONLY | O_RDWR, 0), EINVAL);
    NO(drystone_file_open(image, "/f", O_RDWR | O_DIRECTORY, 0), EINVAL);
    NO(drystone_file_open(NULL, "/f", O_RDWR, 0), EBADF);
    for (int round = 0; round < 2; round++) {
        log = drystone_file_open(image, "/log", O_WRONLY | O_CREAT | O_APPEND | O_TRUNC, 0644);
        IS(drystone_file_write(log, "anew", 4), 4);
        OK(drystone_file_close(log));
        OK(drystone_stat(image, "/log", &stat));
        IS(stat.size, 4);
    }
    OK(drystone_unlink(image, "/log"));
    file = drystone_file_open(image, "/f", O_RDWR | O_CREAT | O_EXCL, 0622);
    NO(drystone_file_open(image, "/f", O_RDWR | O_CREAT | O_EXCL, 0622), EEXIST);
    IS(drystone_file_write(file, "hello", 5), 5);
    IS(drystone_file_write(file, NULL, 5), -EINVAL);
    IS(drystone_file_write(file, NULL, 0), 0);
    IS(drystone_file_pwrite(file, "J", 1, 0), 1);
    IS(drystone_file_seek(file, -4, SEEK_CUR), 1);
    IS(drystone_file_seek(file, -9, SEEK_SET), -EINVAL);
    IS(drystone_file_seek(file, 0, 77), -EINVAL);
    IS(drystone_file_seek(file, 0, SEEK_DATA), 0);
    IS(drystone_file_seek(file, 0, SEEK_HOLE), 5);
    IS(drystone_file_seek(file, 5, SEEK_DATA), -ENXIO);
    IS(drystone_file_seek(file, -1, SEEK_HOLE), -EINVAL);
    IS(drystone_file_seek(file, 0, SEEK_CUR), 5);
    IS(drystone_file_seek(file, 1, SEEK_SET), 1);
    memset(buffer, 'x', 8);
    IS(drystone_file_read(file, buffer, 8), 4);
    IS(memcmp(buffer, "ello\0\0\0", 8), 0);
    IS(drystone_file_read(file, buffer, 8), 0);
    IS(memcmp(buffer, "\0\0\0\0\0\0\0", 8), 0);
    IS(drystone_file_read(file, NULL, 8), -EINVAL);
    IS(drystone_file_pread(file, buffer, 2, 0), 2);
    IS(memcmp(buffer, "Je", 2), 0);
    IS(drystone_file_pread(file, buffer, (size_t)-1, 0), -EINVAL);
    OK(drystone_file_fallocate(file, 0, 0, 8192));
    OK(drystone_file_fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096));
    IS(drystone_file_fallocate(file, FALLOC_FL_PUNCH_HOLE, 0, 4096), -EOPNOTSUPP);
    OK(drystone_file_fallocate(file, FALLOC_FL_ZERO_RANGE, 4096, 4096));
    OK(drystone_file_fallocate(file, FALLOC_FL_INSERT_RANGE, 4096, 4096));
    OK(drystone_file_fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 4096, 4096));
    OK(drystone_file_stat(file, &stat));
    IS(stat.size, 8192);
    IS(stat.mode, S_IFREG | 0622);
    IS(drystone_file_stat(file, NULL), -EINVAL);
    OK(drystone_file_truncate(file, 3));
    IS(drystone_file_seek(file, 0, SEEK_END), 3);
    OK(drystone_file_sync(file));
    OK(drystone_file_sync_data(file));

    log = drystone_file_open(image, "/f", O_WRONLY | O_APPEND, 0);
    IS(drystone_file_write(log, "end", 3), 3);
    IS(drystone_file_read(log, buffer, 8), -EBADF);
    OK(drystone_file_close(log));
    log = drystone_file_open(image, "/f", O_RDONLY, 0);
    IS(drystone_file_write(log, "end", 3), -EBADF);
    IS(drystone_file_truncate(log, 3), -EINVAL);
    IS(drystone_close(image), -EBUSY);
    OK(drystone_file_close(log));
    OK(drystone_file_stat(file, &stat));
    IS(stat.size, 6);
    log = drystone_file_open(image, "/f", O_WRONLY | O_TRUNC, 0);
    OK(drystone_file_close(log));

    /* Used twice, or as what it isn't. */
    IS(drystone_directory_close((drystone_directory *)file), -EBADF);
    OK(drystone_file_close(file));
    IS(drystone_file_close(file), -EBADF);
    IS(drystone_file_read(file, buffer, 8), -EBADF);
    IS(drystone_file_pread(file, buffer, 8, 0), -EBADF);
    IS(drystone_file_write(file, buffer, 8), -EBADF);
    IS(drystone_file_pwrite(file, buffer, 8, 0), -EBADF);
    IS(drystone_file_seek(file, 0, SEEK_SET), -EBADF);
    IS(drystone_file_stat(file, &stat), -EBADF);
    IS(drystone_file_truncate(file, 0), -EBADF);
    IS(drystone_file_fallocate(file, 0, 0, 1), -EBADF);
    IS(drystone_file_sync(file), -EBADF);
    IS(drystone_file_sync_data(file), -EBADF);
    free(buffer);
}

static void listings(drystone_image *image) {
    drystone_entry entry;
    drystone_walk_entry visited;
    drystone_directory *directory;
    drystone_walk *walk;
    int count = 0;

    NO(drystone_directory_open(image, "/f"), ENOTDIR);
    directory = drystone_directory_open(image, "/");
    IS(drystone_close(image), -EBUSY);
    while (drystone_directory_next(directory, &entry) == 1) {
        IS(entry.inode > 0, 1);
        IS(entry.type == S_IFDIR, strcmp(entry.name, "f") != 0);
        count++;
    }
    IS(count, 3); /* a, f, lost+found */
    OK(drystone_directory_next(directory, &entry));
    OK(drystone_directory_close(directory));
    IS(drystone_directory_close(directory), -EBADF);
    IS(drystone_directory_next(directory, &entry), -EBADF);
    directory = drystone_directory_open(image, "/");
    IS(drystone_directory_next(directory, NULL), -EINVAL);
    OK(drystone_directory_close(directory));

    walk = drystone_walk_open(image, "/");
    IS(drystone_walk_next(walk, &visited), 1);
    IS(strcmp(visited.path, "/"), 0);
    IS(visited.depth, 0);
    IS(drystone_walk_next(walk, &visited), 1);
    IS(strcmp(visited.path, "/a"), 0);
    OK(drystone_walk_skip(walk));
    OK(drystone_walk_skip(walk));
    IS(drystone_walk_next(walk, &visited), 1);
    IS(strcmp(visited.path, "/f"), 0);
    IS(visited.stat.mode & S_IFMT, S_IFREG);
    /* Nothing is in a file: what follows isn't left out. */
    OK(drystone_walk_skip(walk));
    IS(drystone_walk_next(walk, &visited), 1);
    IS(strcmp(visited.path, "/lost+found"), 0);
    OK(drystone_walk_next(walk, &visited));
    OK(drystone_walk_close(walk));
    IS(drystone_walk_close(walk), -EBADF);
    IS(drystone_walk_next(walk, &visited), -EBADF);
    IS(drystone_walk_skip(walk), -EBADF);
    walk = drystone_walk_open(image, "/nothing");
    IS(drystone_walk_next(walk, &visited), -ENOENT);
    OK(drystone_walk_close(walk));
    NO(drystone_walk_open(NULL, "/"), EBADF);
}

static void transfers(drystone_image *image, const char *here, const char *back) {
    void *data;
    size_t size;

    OK(drystone_write_file(image, "/whole", "a\0b", 3));
    OK(drystone_read_file(image, "/whole", &data, &size));
    IS(size, 3);
    IS(memcmp(data, "a\0b\0", 4), 0);
    drystone_free(data);
    drystone_free(NULL);
    IS(drystone_read_file(image, "/nothing", &data, &size), -ENOENT);
    IS(drystone_read_file(image, "/whole", NULL, &size), -EINVAL);
    IS(drystone_write_file(image, "/a", "a", 1), -EISDIR);
    drystone_copy_summary in, out;
    OK(drystone_copy_in(image, here, "/in", &in));
    OK(drystone_copy_out(image, "/in", back, &out));
    IS(in.files > 0 && in.files == out.files && in.bytes == out.bytes, 1);
    OK(drystone_copy_in(image, here, "/in", NULL));
    IS(drystone_copy_in(image, "/no/such", "/in", &in), -ENOENT);
    IS(drystone_copy_out(image, "/nothing", back, NULL) < 0, 1);
}

static void users(drystone_image *image) {
    unsigned groups[] = {2001};
    drystone_image *user = drystone_as_user(image, 1000, 1000, groups, 1);

    NO(drystone_as_user(image, 1000, 1000, NULL, 1), EINVAL);
    /* As getgroups says that it failed. */
    NO(drystone_as_user(image, 1000, 1000, groups, (size_t)-1), EINVAL);
    NO(drystone_as_user(image, 1000, 1000, groups, 65537), EINVAL);
    IS(drystone_mkdir(user, "/mine", 0755), -EACCES);
    OK(drystone_chmod(user, "/a/file", 0600));
    IS(drystone_close(image), -EBUSY);
    OK(drystone_close(user));
    IS(drystone_close(user), -EBADF);
}

/* A child has none of the threads that an image needs: its parent's handles are refused, and stay whole. */
static void forks(drystone_image *image, const char *name) {
    drystone_file *file = drystone_file_open(image, "/f", O_RDWR, 0);
    pid_t child;
    int status;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        failed = 0;
        IS(drystone_file_write(file, "child", 5), -EBADF);
        IS(strstr(drystone_message(), "forked") != NULL, 1);
        IS(drystone_file_close(file), -EBADF);
        IS(drystone_sync(image), -EBADF);
        IS(drystone_close(image), -EBADF);
        IS(drystone_close(NULL), -EBADF);
        NO(drystone_open(name, 0), EBUSY);
        NO(drystone_open(name, DRYSTONE_READ_ONLY), EBUSY);
        fflush(stdout);
        _exit(failed);
    }
    IS(waitpid(child, &status, 0), child);
    OK(status);
    OK(drystone_file_close(file));
}

int main(int count, char **arguments) {
    char name[4096], missing[4096], here[4096], back[4096];
    drystone_image *image;

    if (count != 2 && count != 3) return 2;
    snprintf(name, sizeof name, "%s/disk.img", arguments[1]);
    snprintf(missing, sizeof missing, "%s/missing.img", arguments[1]);
    snprintf(here, sizeof here, "%s/here", arguments[1]);
    snprintf(back, sizeof back, "%s/back", arguments[1]);
    if (count == 3) {
        char *small = malloc(3);
        image = drystone_open(name, DRYSTONE_READ_ONLY);
        return drystone_readlink(image, "/a/l", small, 5) > 0;
    }
    image = images(name, missing);
    names(image);
    attributes(image);
    files(image);
    listings(image);
    transfers(image, here, back);
    users(image);
    forks(image, name);
    OK(drystone_sync(image));
    OK(drystone_close(image));
    OK(drystone_check(name, NULL, NULL));
    return failed;
}
