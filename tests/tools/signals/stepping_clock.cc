// Preloaded into programs: readings of the wall clock are an hour ahead and an hour behind in turn.
// If $STEPPING_CLOCK_OFFSET names a file that begins with an int64_t, the wall clock is instead off
// by this number of seconds, and steps when the file is written. The monotonic clock is unchanged.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr time_t kStepSeconds = 3600;

const std::atomic<int64_t>* OffsetInFile() {
  const char* const path = getenv("STEPPING_CLOCK_OFFSET");
  if (path == nullptr) return nullptr;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) abort();
  return static_cast<const std::atomic<int64_t>*>(mapped);
}

time_t NextStep() {
  static const std::atomic<int64_t>* const lasting = OffsetInFile();
  if (lasting != nullptr) return lasting->load(std::memory_order_relaxed);
  static std::atomic<unsigned> readings = 0;
  return readings.fetch_add(1, std::memory_order_relaxed) % 2 == 0 ? kStepSeconds : -kStepSeconds;
}

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  static auto* const next = Next<int(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += NextStep();
  return result;
}

int gettimeofday(timeval* now, void* zone) noexcept {
  static auto* const next = Next<int(timeval*, void*)>("gettimeofday");
  const int result = next(now, zone);
  if (result == 0) now->tv_sec += NextStep();
  return result;
}

time_t time(time_t* now) noexcept {
  timespec precise = {};
  clock_gettime(CLOCK_REALTIME, &precise);
  if (now != nullptr) *now = precise.tv_sec;
  return precise.tv_sec;
}

}  // extern "C"
