// Finds changes that make a job fit: the smallest change of each kind, each of them planned.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/flag_values.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "geminid/types.h"
#include "training/forecast/forecast.h"

namespace geminid::forecast {
namespace {

using base::kGiB;
using base::kKiB;
using base::kMiB;
constexpr std::uint32_t kNodesMax = 1024;

// The questions about a job, together with what it trains.
struct Question {
  std::function<absl::StatusOr<bool>(const Job&)> fits;
  std::function<absl::StatusOr<std::uint64_t>(const Job&)> least_host_bytes;
};

class Search {
 public:
  Search(Question question, const Job& job) : question_(std::move(question)), job_(job) {}

  absl::Status TryMemory() {
    GEMINID_RETURN_IF_ERROR(TryDevice());
    GEMINID_RETURN_IF_ERROR(TryHost());
    return TryDeviceAndHost();
  }

  absl::Status TryBatchAndNodes(const Model& model) {
    GEMINID_RETURN_IF_ERROR(TrySequences());
    // An image's sequence length is fixed.
    if (!model.image) GEMINID_RETURN_IF_ERROR(TrySequenceLength());
    return TryNodes();
  }

  std::vector<Change> TakeChanges() { return std::move(changes_); }

 private:
  absl::StatusOr<bool> Fits(const Job& job) const {
    const absl::StatusOr<bool> fits = question_.fits(job);
    if (absl::IsResourceExhausted(fits.status())) return false;
    return fits;
  }

  void Add(Change::Kind kind, std::uint64_t value, std::string text) {
    changes_.push_back({.kind = kind, .value = value, .text = std::move(text)});
  }

  // The least bytes of usable device memory with which `changed` fits; 0 if none does. Searches by
  // doubling, then by bisection in whole steps.
  absl::StatusOr<std::uint64_t> LeastDevice(Job changed) const {
    const std::uint64_t now = changed.hardware.usable_bytes();
    changed.hardware.reserved_bytes = 0;
    std::uint64_t& bytes = changed.hardware.device_bytes;
    bytes = now;
    for (bool fits = false; !fits;) {
      if (bytes >= kMaxArenaBytes) return 0;
      bytes = std::min(2 * bytes, kMaxArenaBytes);
      GEMINID_ASSIGN_OR_RETURN(fits, Fits(changed));
    }
    const std::uint64_t step = MemoryStep(std::max(now, bytes / 2));
    std::uint64_t low = now / step;
    std::uint64_t high = base::RoundUp(bytes, step) / step;
    while (low + 1 < high) {
      const std::uint64_t middle = (low + high) / 2;
      bytes = middle * step;
      GEMINID_ASSIGN_OR_RETURN(const bool fits, Fits(changed));
      (fits ? high : low) = middle;
    }
    return high * step;
  }

  absl::Status TryDevice() {
    GEMINID_ASSIGN_OR_RETURN(const std::uint64_t bytes, LeastDevice(job_));
    if (bytes == 0) return absl::OkStatus();
    Add(Change::Kind::kDeviceBytes, bytes,
        absl::StrCat("--device-memory ", base::ExactBytes(bytes), ": ",
                     base::FormatBytes(bytes - job_.hardware.usable_bytes()),
                     " more on each device"));
    return absl::OkStatus();
  }

  // If both lack memory: finds the least device memory with which some host memory would do, and
  // then the least host memory for it.
  absl::Status TryDeviceAndHost() {
    Job changed = job_;
    changed.host_bytes = kMostHostBytes;
    GEMINID_ASSIGN_OR_RETURN(const bool device_is_enough, Fits(changed));
    if (device_is_enough) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(const std::uint64_t device, LeastDevice(changed));
    if (device == 0) return absl::OkStatus();
    changed.hardware.reserved_bytes = 0;
    changed.hardware.device_bytes = device;
    GEMINID_ASSIGN_OR_RETURN(const std::uint64_t least, question_.least_host_bytes(changed));
    const std::uint64_t host = base::RoundUp(least, MemoryStep(least));
    if (host <= job_.host_bytes) return absl::OkStatus();
    changes_.push_back({.kind = Change::Kind::kDeviceAndHostBytes,
                        .value = device,
                        .host_bytes = host,
                        .text = absl::StrCat("--device-memory ", base::ExactBytes(device),
                                             " --host-memory ", base::ExactBytes(host),
                                             ": the least device memory, with what it needs of the "
                                             "host")});
    return absl::OkStatus();
  }

  absl::Status TryHost() {
    const absl::StatusOr<std::uint64_t> least = question_.least_host_bytes(job_);
    if (absl::IsResourceExhausted(least.status())) return absl::OkStatus();
    if (!least.ok()) return least.status();
    const std::uint64_t bytes = base::RoundUp(*least, MemoryStep(*least));
    if (bytes <= job_.host_bytes) return absl::OkStatus();
    Add(Change::Kind::kHostBytes, bytes,
        absl::StrCat("--host-memory ", base::ExactBytes(bytes), ": ",
                     base::FormatBytes(bytes - job_.host_bytes), " more in each node"));
    return absl::OkStatus();
  }

  // The most units below `now` that fit, found by bisection; `set` puts a number into a job.
  template <typename Set>
  absl::StatusOr<std::uint64_t> MostThatFits(std::uint64_t now, Set set) const {
    std::uint64_t most = 0;
    for (std::uint64_t low = 1, high = now - 1; low <= high;) {
      const std::uint64_t middle = (low + high) / 2;
      Job changed = job_;
      set(middle, &changed);
      GEMINID_ASSIGN_OR_RETURN(const bool fits, Fits(changed));
      if (fits) {
        most = middle;
        low = middle + 1;
      } else {
        high = middle - 1;
      }
    }
    return most;
  }

  absl::Status TrySequences() {
    GEMINID_ASSIGN_OR_RETURN(const std::uint64_t most,
                             MostThatFits(job_.batch.sequences, [](std::uint64_t n, Job* job) {
                               job->batch.sequences = n;
                             }));
    const std::uint64_t all = most * job_.ranks;
    if (most > 0) Add(Change::Kind::kSequences, all, absl::StrCat("--batch ", all));
    return absl::OkStatus();
  }

  absl::Status TrySequenceLength() {
    const std::uint64_t steps = (job_.batch.sequence_length + kTokensStep - 1) / kTokensStep;
    GEMINID_ASSIGN_OR_RETURN(const std::uint64_t most,
                             MostThatFits(steps, [](std::uint64_t n, Job* job) {
                               job->batch.sequence_length = n * kTokensStep;
                             }));
    if (most > 0) {
      Add(Change::Kind::kSequenceLength, most * kTokensStep,
          absl::StrCat("--context ", most * kTokensStep));
    }
    return absl::OkStatus();
  }

  // Finds the least number of nodes, by doubling and then by bisection.
  absl::Status TryNodes() {
    std::uint32_t low = job_.nodes;  // does not fit
    std::uint32_t high = 0;          // fits
    while (high == 0 ? low < kNodesMax : low + 1 < high) {
      const std::uint32_t nodes = high == 0 ? std::min(2 * low, kNodesMax) : (low + high) / 2;
      Job changed = job_;
      changed.nodes = nodes;
      changed.ranks = nodes * job_.ranks_per_node();
      GEMINID_ASSIGN_OR_RETURN(const bool fits, Fits(changed));
      (fits ? high : low) = nodes;
    }
    if (high > 0) {
      Add(Change::Kind::kNodes, high,
          absl::StrCat("--nodes ", high, " --ranks ", high * job_.ranks_per_node(), " --batch ",
                       high * job_.ranks_per_node() * job_.batch.sequences, ": more such nodes"));
    }
    return absl::OkStatus();
  }

  const Question question_;
  const Job& job_;
  std::vector<Change> changes_;
};

}  // namespace

const char* Name(Change::Kind kind) {
  switch (kind) {
    case Change::Kind::kDeviceBytes:
      return "device_bytes";
    case Change::Kind::kHostBytes:
      return "host_bytes";
    case Change::Kind::kDeviceAndHostBytes:
      return "device_and_host_bytes";
    case Change::Kind::kSequences:
      return "batch";
    case Change::Kind::kSequenceLength:
      return "sequence";
    case Change::Kind::kNodes:
      return "nodes";
  }
  return "?";
}

std::uint64_t MemoryStep(std::uint64_t bytes) {
  if (bytes < 16 * kMiB) return 64 * kKiB;
  if (bytes < kGiB) return kMiB;
  return bytes < 16 * kGiB ? kGiB / 4 : kGiB;
}

absl::StatusOr<std::vector<Change>> FittingChanges(const Model& model, const Job& job) {
  Search search(
      {.fits = [&](const Job& changed) { return forecast::Fits(model, changed); },
       .least_host_bytes = [&](const Job& changed) { return LeastHostBytes(model, changed); }},
      job);
  GEMINID_RETURN_IF_ERROR(search.TryMemory());
  GEMINID_RETURN_IF_ERROR(search.TryBatchAndNodes(model));
  return search.TakeChanges();
}

absl::StatusOr<std::vector<Change>> FittingChanges(const RecordedTrace& trace, const Job& job) {
  const auto problem = [&](const Job& changed) { return MakeProblem(trace, changed); };
  Search search(
      {.fits = [&](const Job& changed) { return forecast::Fits(problem(changed), changed); },
       .least_host_bytes =
           [&](const Job& changed) { return LeastHostBytes(problem(changed), changed); }},
      job);
  GEMINID_RETURN_IF_ERROR(search.TryMemory());
  return search.TakeChanges();
}

}  // namespace geminid::forecast
