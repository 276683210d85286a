"""The system calls a sandboxed interpreter may make, as a seccomp filter.

An allow-list: what is not named fails as if the kernel did not have it. Absent on purpose: new
processes, sockets, mounts, namespaces, tracing, other processes' memory and signals to them, keys,
shared memory segments, io_uring, bpf. Threads are allowed: `clone` with CLONE_THREAD.
"""

from __future__ import annotations

import errno
import tempfile
from functools import lru_cache

CLONE_THREAD = 0x10000
ALLOWED = """
    read write readv writev pread64 pwrite64 lseek close close_range dup dup2 dup3 fcntl pipe pipe2 ioctl
    open openat access faccessat faccessat2 stat lstat fstat newfstatat statx statfs fstatfs readlink readlinkat
    getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2
    symlink symlinkat link linkat truncate ftruncate fsync fdatasync chmod fchmod fchmodat utimensat umask
    fadvise64 fallocate copy_file_range sendfile flock
    mmap munmap mremap mprotect madvise brk msync mlock munlock membarrier
    futex futex_waitv set_robust_list get_robust_list rseq set_tid_address gettid getpid getppid getpgrp getpgid
    getsid getuid geteuid getgid getegid getresuid getresgid getgroups setgroups setresuid setresgid setsid
    exit exit_group execve wait4 waitid restart_syscall arch_prctl prctl prlimit64 getrlimit setrlimit getrusage
    rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack pause
    setitimer getitimer alarm timer_create timer_settime timer_gettime timer_delete times sysinfo uname
    clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getrandom sched_yield
    sched_getaffinity sched_getparam sched_getscheduler getpriority
    poll ppoll select pselect6 epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 signalfd4
"""


@lru_cache
def program() -> bytes:
    """The filter, compiled for this machine.

    Raises: OSError: libseccomp is missing.
    """
    import pyseccomp

    made = pyseccomp.SyscallFilter(pyseccomp.ERRNO(errno.ENOSYS))
    for name in ALLOWED.split():
        try:
            made.add_rule(pyseccomp.ALLOW, name)
        except (OSError, RuntimeError, ValueError):  # no such call on this architecture
            continue
    threads = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, CLONE_THREAD, CLONE_THREAD)
    made.add_rule(pyseccomp.ALLOW, "clone", threads)
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()
