/* Loads the library, opens an image, and unloads the library while a thread of it waits to write the image back.
   Arguments: the library, and a new image. */
#define _GNU_SOURCE
#include "drystone.h"
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    void *library = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    __typeof__(&drystone_mkfs) make;
    __typeof__(&drystone_open) open;
    __typeof__(&drystone_write_file) write;
    drystone_image *image;
    pid_t child;
    int status;

    if (library == NULL) return 2;
    *(void **)&make = dlsym(library, "drystone_mkfs");
    *(void **)&open = dlsym(library, "drystone_open");
    *(void **)&write = dlsym(library, "drystone_write_file");
    if (make(arguments[2], 16 << 20, NULL, NULL, 0) != 0) return 3;
    image = open(arguments[2], 0);
    if (image == NULL || write(image, "/file", "content", 7) != 0) return 4;
    if (dlclose(library) != 0) return 5;
    child = fork();
    if (child == 0) _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0) return 6;
    /* More than the interval of commits. */
    sleep(6);
    return 0;
}
