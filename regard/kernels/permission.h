// Whether this process may use the tiles of its processor (Intel's AMX).

#pragma once

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace {

// Linux makes room for their registers when a process asks, and may refuse. Other systems are not asked.
inline bool tiles_allowed() {
#if defined(__linux__) && defined(__x86_64__)
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18;
    static const bool allowed = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
    return allowed;
#else
    return false;
#endif
}

}  // namespace
