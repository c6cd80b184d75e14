#include "base/process_limits.h"

#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace geminid::base {
namespace {

std::string Limit(__rlimit_resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return absl::StrCat(limit.rlim_cur);
}

constexpr char kRaiseDescriptors[] =
    "raise the limit (ulimit -n, LimitNOFILE= of its service, --ulimit nofile= of its container)";
constexpr char kRaiseSystemDescriptors[] = "raise sysctl fs.file-max";
constexpr char kRaiseProcesses[] =
    "raise the limit of processes (ulimit -u, TasksMax= of its service, pids.max of its cgroup)";

// Advice about a system error, which is recognized by its message.
std::string AdviceOn(const std::string& message) {
  const auto is = [&](int error) {
    return absl::StrContains(message, std::generic_category().message(error));
  };
  if (absl::StrContains(message, "ulimit")) return "";
  if (is(EMFILE)) {
    return absl::StrCat("; this process may have ", Limit(RLIMIT_NOFILE),
                        " descriptors: ", kRaiseDescriptors);
  }
  if (is(ENFILE)) {
    return absl::StrCat("; the system has no descriptor left: ", kRaiseSystemDescriptors);
  }
  if (is(EAGAIN) && !absl::StrContains(message, "lock")) {
    return absl::StrCat("; ", kRaiseProcesses, ", which is ", Limit(RLIMIT_NPROC),
                        " for this user");
  }
  return "";
}

}  // namespace

void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

absl::Status CheckDescriptors(size_t count) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= count) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("a process may have ", limit.rlim_max,
                                                   " descriptors here, and this run needs ", count,
                                                   ": ", kRaiseDescriptors));
}

absl::Status ProbeDescriptors(size_t count) {
  std::vector<UniqueFd> open;
  open.reserve(count);
  while (open.size() < count) {
    UniqueFd fd(eventfd(0, EFD_CLOEXEC));
    if (!fd.valid()) break;
    open.push_back(std::move(fd));
  }
  if (open.size() == count) return absl::OkStatus();
  const int error = errno;
  if (error == ENFILE) {
    return absl::ResourceExhaustedError(absl::StrCat("this process needs ", count,
                                                     " more descriptors, and the system gives it ",
                                                     open.size(), ": ", kRaiseSystemDescriptors));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "this process needs ", count, " more descriptors, and of the ", Limit(RLIMIT_NOFILE),
      " that it may have ", open.size(), " are left: close files, or ", kRaiseDescriptors));
}

absl::Status ProbeThreads(size_t count) {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::vector<std::thread> threads;
  threads.reserve(count);
  try {
    while (threads.size() < count) {
      threads.emplace_back([&] {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return over; });
      });
    }
  } catch (const std::system_error&) {  // no further thread can be started
  }
  {
    const std::lock_guard lock(mutex);
    over = true;
  }
  changed.notify_all();
  for (std::thread& thread : threads) thread.join();
  if (threads.size() == count) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("this process needs up to ", count,
                                                   " more threads, and the system gives it ",
                                                   threads.size(), ": ", kRaiseProcesses));
}

absl::Status WithLimits(const absl::Status& status) {
  const std::string message(status.message());
  const std::string advice = AdviceOn(message);
  return advice.empty() ? status : absl::Status(status.code(), absl::StrCat(message, advice));
}

}  // namespace geminid::base
