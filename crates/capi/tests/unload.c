/* Unloads the library after a thread has used it: its code has to stay, for threads of open images may run it, and
   so does what it has registered for forks. Only a thread that has ended uses it, since what the library keeps for a
   thread would hold it as well. Arguments: the library, and a new image. */
#define _GNU_SOURCE
#include "drystone.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static __typeof__(&drystone_mkfs) make;

static void *use(void *image) {
    return make(image, 16 << 20, NULL, NULL, 0) == 0 ? image : NULL;
}

static int is_mapped(void) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        if (strstr(line, "libdrystone") != NULL) found = 1;
    }
    if (maps != NULL) fclose(maps);
    return found;
}

int main(int count, char **arguments) {
    void *library = count == 3 ? dlopen(arguments[1], RTLD_NOW) : NULL;
    void *made = NULL;
    pthread_t thread;
    pid_t child;
    int status;

    if (library == NULL) return 2;
    *(void **)&make = dlsym(library, "drystone_mkfs");
    if (pthread_create(&thread, NULL, use, arguments[2]) != 0) return 3;
    if (pthread_join(thread, &made) != 0 || made == NULL) return 4;
    if (dlclose(library) != 0) return 5;
    if (!is_mapped()) return 6;
    child = fork();
    if (child == 0) _exit(0);
    if (waitpid(child, &status, 0) != child || status != 0) return 7;
    return 0;
}
