// Preloaded into programs: allows each process only $FEW_THREADS threads that C++ code starts.
// Threads of C libraries are not counted, because these libraries end the process if they get none.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace {

using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

bool IsOfTheCppLibrary(const void* address) {
  Dl_info info = {};
  return dladdr(address, &info) != 0 && strstr(info.dli_fname, "libstdc++") != nullptr;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*run)(void*), void* argument) {
  static std::atomic<int> left = [] {
    const char* const few = getenv("FEW_THREADS");
    return few == nullptr ? 0 : atoi(few);
  }();
  if (IsOfTheCppLibrary(__builtin_return_address(0)) && left.fetch_sub(1) <= 0) return EAGAIN;
  static Create* const next = reinterpret_cast<Create*>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, argument);
}
