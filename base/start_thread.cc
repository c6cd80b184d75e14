#include "base/start_thread.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::base {

absl::StatusOr<std::thread> StartThread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread can be started: ", error.what(),
                     "; raise the limit of processes (ulimit -u, TasksMax=)"));
  }
}

}  // namespace geminid::base
