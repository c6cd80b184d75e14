#include "collectives/tensor_parallel/ahead.h"

#include <system_error>
#include <thread>

#include "base/status_macros.h"

namespace geminid::collectives {

absl::Status FetchAhead(int steps, absl::FunctionRef<absl::Status(int)> fetch,
                        absl::FunctionRef<absl::Status(int)> use) {
  if (steps > 0) GEMINID_RETURN_IF_ERROR(fetch(0));
  for (int step = 0; step < steps; ++step) {
    absl::Status fetched;
    std::thread beside;
    const bool more = step + 1 < steps;
    if (more) {
      try {
        beside = std::thread([&, step] { fetched = fetch(step + 1); });
      } catch (const std::system_error&) {  // no thread to be had: in turn, then
      }
    }
    const absl::Status used = use(step);
    if (beside.joinable()) {
      beside.join();
    } else if (more && used.ok()) {
      fetched = fetch(step + 1);
    }
    GEMINID_RETURN_IF_ERROR(used);
    GEMINID_RETURN_IF_ERROR(fetched);
  }
  return absl::OkStatus();
}

}  // namespace geminid::collectives
