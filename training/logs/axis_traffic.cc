#include "training/logs/axis_traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

using collectives::kOpKindCount;
using collectives::OperationTraffic;
using collectives::OpKind;

constexpr size_t kFields = 6;  // of a row, as ranks tell each other

size_t PlaceOf(TrafficAxis axis, size_t kind) {
  return (static_cast<size_t>(axis) * kOpKindCount + kind) * kFields;
}

void AddTo(int64_t* row, const OperationTraffic& traffic) {
  row[0] += static_cast<int64_t>(traffic.calls);
  for (const collectives::PeerTraffic& peer : traffic.peers) {
    row[1] += static_cast<int64_t>(peer.bytes_sent);
    row[2] += static_cast<int64_t>(peer.bytes_received);
    row[3] += peer.bytes_sent + peer.bytes_received > 0 ? 1 : 0;
  }
  row[4] += std::llround(traffic.seconds * 1e9);
  row[5] += static_cast<int64_t>(traffic.network_bytes_received);
}

void TakeFrom(OperationTraffic& rest, const OperationTraffic& traffic,
              const std::vector<int>& ranks) {
  rest.calls -= traffic.calls;
  rest.network_bytes_received -= traffic.network_bytes_received;
  rest.seconds = std::max(0.0, rest.seconds - traffic.seconds);
  for (size_t i = 0; i < ranks.size(); ++i) {
    collectives::PeerTraffic& peer = rest.peers[static_cast<size_t>(ranks[i])];
    peer.bytes_sent -= traffic.peers[i].bytes_sent;
    peer.bytes_received -= traffic.peers[i].bytes_received;
  }
}

}  // namespace

const char* Name(TrafficAxis axis) {
  switch (axis) {
    case TrafficAxis::kPipeline:
      return "pipeline";
    case TrafficAxis::kData:
      return "data";
    case TrafficAxis::kSequence:
      return "sequence";
    case TrafficAxis::kExpert:
      return "expert";
    case TrafficAxis::kTensor:
      return "tensor";
    case TrafficAxis::kTable:
      return "tied table";
    case TrafficAxis::kAll:
      return "all ranks";
  }
  return "";
}

std::string TrafficTable(const std::vector<TrafficRow>& rows) {
  std::string table =
      absl::StrFormat("%-10s  %-13s  %8s  %10s  %10s  %10s  %8s  %8s", "axis", "operation", "calls",
                      "sent", "received", "network", "partners", "seconds");
  for (const TrafficRow& row : rows) {
    absl::StrAppendFormat(&table, "\n%-10s  %-13s  %8d  %10s  %10s  %10s  %8d  %8.3f",
                          Name(row.axis), collectives::Name(row.operation), row.calls,
                          base::FormatBytes(row.bytes_sent), base::FormatBytes(row.bytes_received),
                          base::FormatBytes(row.network_bytes), row.partners, row.seconds);
  }
  return table;
}

void TrafficMeter::Add(TrafficAxis axis, std::vector<int> ranks, Stats stats) {
  sources_.push_back({axis, std::move(ranks), std::move(stats)});
}

absl::StatusOr<std::vector<TrafficRow>> TrafficMeter::Gather(
    collectives::Communicator& ranks) const {
  std::vector<int64_t> mine(PlaceOf(TrafficAxis{kTrafficAxes}, 0));
  auto rest = world_.Stats().traffic;
  for (const Source& source : sources_) {
    const auto traffic = source.stats().traffic;
    for (size_t kind = 0; kind < traffic.size(); ++kind) {
      AddTo(&mine[PlaceOf(source.axis, kind)], traffic[kind]);
      TakeFrom(rest[kind], traffic[kind], source.ranks);
    }
  }
  for (size_t kind = 0; kind < rest.size(); ++kind) {
    AddTo(&mine[PlaceOf(TrafficAxis::kAll, kind)], rest[kind]);
  }
  std::vector<int64_t> sums(mine.size()), most(mine.size());
  GEMINID_RETURN_IF_ERROR(ranks.AllReduce(mine, sums));
  GEMINID_RETURN_IF_ERROR(ranks.AllReduce(mine, most, collectives::ReduceOp::kMax));
  std::vector<TrafficRow> rows;
  for (size_t place = 0; place < mine.size(); place += kFields) {
    if (most[place] == 0) continue;
    const size_t row = place / kFields;
    rows.push_back({.axis = static_cast<TrafficAxis>(row / kOpKindCount),
                    .operation = static_cast<OpKind>(row % kOpKindCount),
                    .calls = static_cast<uint64_t>(most[place]),
                    .bytes_sent = static_cast<uint64_t>(sums[place + 1]),
                    .bytes_received = static_cast<uint64_t>(sums[place + 2]),
                    .network_bytes = static_cast<uint64_t>(sums[place + 5]),
                    .partners = static_cast<uint64_t>(most[place + 3]),
                    .seconds = static_cast<double>(most[place + 4]) * 1e-9});
  }
  return rows;
}

}  // namespace geminid::trainer
