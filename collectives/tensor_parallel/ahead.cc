#include "collectives/tensor_parallel/ahead.h"

#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/start_thread.h"
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
      absl::StatusOr<std::thread> started =
          base::StartThread([&, step] { fetched = fetch(step + 1); });
      if (started.ok()) beside = *std::move(started);  // else in turn
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
