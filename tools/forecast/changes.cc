// What would make it fit: candidates, each tried.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "tools/forecast/forecast.h"

namespace geminid::forecast {
namespace {

using planner::Tier;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
// What somebody who tries a disk would have: any NVMe drive.
constexpr double kDiskBytesPerSecond = 2e9;
// Sequences are shortened in steps of this, and not below it.
constexpr std::uint64_t kTokensStep = 64;
constexpr std::uint32_t kNodesMax = 1024;

// Up to something one can ask for: whole GiB, or MiB below one.
std::uint64_t RoundUpForPeople(std::uint64_t bytes) {
  const std::uint64_t unit = bytes >= kGiB ? kGiB : kMiB;
  return base::RoundUp(bytes, unit);
}

class Search {
 public:
  Search(const Model& model, const Job& job, const Forecast& forecast)
      : model_(model), job_(job), forecast_(forecast) {}

  absl::StatusOr<std::vector<Change>> Run() {
    for (const planner::Remedy& remedy : forecast_.plan.remedies) {
      GEMINID_RETURN_IF_ERROR(TryMemory(remedy));
    }
    GEMINID_RETURN_IF_ERROR(TrySequences());
    GEMINID_RETURN_IF_ERROR(TrySequenceLength());
    GEMINID_RETURN_IF_ERROR(TryNodes());
    return std::move(changes_);
  }

 private:
  absl::StatusOr<bool> Fits(const Job& job) const { return forecast::Fits(model_, job); }

  void Add(Change::Kind kind, std::uint64_t value, std::string text) {
    changes_.push_back({.kind = kind, .value = value, .text = std::move(text)});
  }

  absl::Status TryMemory(const planner::Remedy& remedy) {
    Job changed = job_;
    const bool device = remedy.tier == Tier::kDevice;
    // The remedy is one rank's; a node has its ranks' together, a rank its device alone.
    const std::uint64_t more =
        RoundUpForPeople(remedy.more_bytes * (device ? 1 : job_.ranks_per_node()));
    std::uint64_t* const bytes = remedy.tier == Tier::kHost ? &changed.host_bytes
                                 : device                   ? &changed.hardware.device_bytes
                                                            : &changed.disk_bytes;
    *bytes += more;
    if (remedy.tier == Tier::kDisk && job_.disk_bytes == 0) {
      changed.disk_read_bytes_per_second = kDiskBytesPerSecond;
      changed.disk_write_bytes_per_second = kDiskBytesPerSecond;
    }
    GEMINID_ASSIGN_OR_RETURN(const bool fits, Fits(changed));
    if (!fits) return absl::OkStatus();
    const std::string size = base::FormatBytes(more);
    const std::string all = base::FormatBytes(*bytes);
    if (device) {
      Add(Change::Kind::kDeviceBytes, *bytes,
          absl::StrCat("a device with ", size, " more, ", all, " in all"));
    } else if (remedy.tier == Tier::kHost) {
      Add(Change::Kind::kHostBytes, *bytes,
          absl::StrCat("add ", size, " of host memory to each node, ", all, " in all"));
    } else {
      Add(Change::Kind::kDiskBytes, *bytes,
          job_.disk_bytes == 0
              ? absl::StrCat("a disk of ", all, " in each node")
              : absl::StrCat("add ", size, " of disk to each node, ", all, " in all"));
    }
    return absl::OkStatus();
  }

  // The most units below `now` that fit, by bisection; `set` puts a number into a job.
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
    if (most > 0) Add(Change::Kind::kSequences, most, absl::StrCat("a batch of ", most));
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
          absl::StrCat("sequences of ", most * kTokensStep, " tokens"));
    }
    return absl::OkStatus();
  }

  // The least number of nodes, doubling and then by bisection.
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
          absl::StrCat(high, " such nodes, ", high * job_.ranks_per_node(), " ranks in all"));
    }
    return absl::OkStatus();
  }

  const Model& model_;
  const Job& job_;
  const Forecast& forecast_;
  std::vector<Change> changes_;
};

}  // namespace

const char* Name(Change::Kind kind) {
  switch (kind) {
    case Change::Kind::kDeviceBytes:
      return "device_bytes";
    case Change::Kind::kHostBytes:
      return "host_bytes";
    case Change::Kind::kDiskBytes:
      return "disk_bytes";
    case Change::Kind::kSequences:
      return "batch";
    case Change::Kind::kSequenceLength:
      return "sequence";
    case Change::Kind::kNodes:
      return "nodes";
  }
  return "?";
}

absl::StatusOr<std::vector<Change>> WhatWouldFit(const Model& model, const Job& job,
                                                 const Forecast& forecast) {
  if (forecast.fits()) return std::vector<Change>{};
  return Search(model, job, forecast).Run();
}

}  // namespace geminid::forecast
