/* User-mode Linux keeps the registers of a guest's process in a buffer of fixed size, and sets them with
 * PTRACE_SETREGSET(NT_X86_XSTATE). A processor whose state is larger refuses the short write with EFAULT.
 * This widens it with the state that the process has at that time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>
#include <sys/uio.h>

enum { GETREGSET = 0x4204, SETREGSET = 0x4205, X86_XSTATE = 0x202 };

static long (*real)(long, ...);

__attribute__((constructor)) static void find(void)
{
    real = (long (*)(long, ...))dlsym(RTLD_NEXT, "ptrace");
}

long ptrace(long request, ...)
{
    static char state[1 << 16] __attribute__((aligned(64)));
    va_list arguments;
    va_start(arguments, request);
    long process = va_arg(arguments, long);
    void *address = va_arg(arguments, void *), *data = va_arg(arguments, void *);
    va_end(arguments);
    if ((int)request == SETREGSET && (long)address == X86_XSTATE && data) {
        struct iovec *given = data, full = { state, sizeof state };
        if (real(GETREGSET, process, address, &full) == 0 && full.iov_len > given->iov_len) {
            memcpy(state, given->iov_base, given->iov_len);
            return real(SETREGSET, process, address, &full);
        }
    }
    return real(request, process, address, data);
}
