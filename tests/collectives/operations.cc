#include "tests/collectives/operations.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

constexpr size_t kCount = 60'000;
constexpr size_t kEach = 50'000;

// The value that `rank` sends to `to` in this step.
float Value(int step, int rank, int to = 0) { return static_cast<float>(step + 10 * rank + to); }

// The sum of all ranks' values in this step.
float SumAt(const Communicator& c, int step) {
  float sum = 0;
  for (int r = 0; r < c.WorldSize(); ++r) sum += Value(step, r);
  return sum;
}

absl::Status CheckAt(const std::vector<float>& values, size_t part, float expected) {
  const auto begin = values.begin() + static_cast<std::ptrdiff_t>(part * kEach);
  const bool right = std::all_of(begin, begin + static_cast<std::ptrdiff_t>(kEach),
                                 [&](float value) { return value == expected; });
  return right ? absl::OkStatus() : absl::DataLossError("a wrong result");
}

absl::Status Reduced(Communicator& c, int step) {
  std::vector<float> in(kEach, Value(step, c.Rank())), out(kEach);
  GEMINID_RETURN_IF_ERROR(c.AllReduce(in, out));
  return CheckAt(out, 0, SumAt(c, step));
}
absl::Status Gathered(Communicator& c, int step) {
  std::vector<float> in(kEach, Value(step, c.Rank())),
      out(static_cast<size_t>(c.WorldSize()) * kEach);
  GEMINID_RETURN_IF_ERROR(c.AllGather(in, out));
  for (int r = 0; r < c.WorldSize(); ++r) {
    GEMINID_RETURN_IF_ERROR(CheckAt(out, static_cast<size_t>(r), Value(step, r)));
  }
  return absl::OkStatus();
}
absl::Status Scattered(Communicator& c, int step) {
  std::vector<float> in(static_cast<size_t>(c.WorldSize()) * kEach, Value(step, c.Rank())),
      out(kEach);
  GEMINID_RETURN_IF_ERROR(c.ReduceScatter(in, out));
  return CheckAt(out, 0, SumAt(c, step));
}
absl::Status Broadcast(Communicator& c, int step) {
  const int root = step % c.WorldSize();
  std::vector<float> values(kEach, Value(step, c.Rank()));
  GEMINID_RETURN_IF_ERROR(c.Broadcast(values, root));
  return CheckAt(values, 0, Value(step, root));
}
absl::Status Exchanged(Communicator& c, int step) {
  std::vector<float> in, out(static_cast<size_t>(c.WorldSize()) * kEach);
  for (int r = 0; r < c.WorldSize(); ++r) in.insert(in.end(), kEach, Value(step, c.Rank(), r));
  GEMINID_RETURN_IF_ERROR(c.AllToAll(in, out));
  for (int r = 0; r < c.WorldSize(); ++r) {
    GEMINID_RETURN_IF_ERROR(CheckAt(out, static_cast<size_t>(r), Value(step, r, c.Rank())));
  }
  return absl::OkStatus();
}
absl::Status PassedOn(Communicator& c, int step) {
  const int from = (c.Rank() + c.WorldSize() - 1) % c.WorldSize();
  std::vector<float> in(kEach, Value(step, c.Rank())), out(kEach);
  GEMINID_RETURN_IF_ERROR(c.SendReceive(in, (c.Rank() + 1) % c.WorldSize(), out, from));
  return CheckAt(out, 0, Value(step, from));
}

}  // namespace

std::string Text(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message());
}

const std::map<std::string, CollectiveCall>& CollectiveCalls() {
  static const std::map<std::string, CollectiveCall> operations = {
      {"AllGather",
       [](Communicator& c, int) {
         std::vector<float> in(kCount), out(kCount * static_cast<size_t>(c.WorldSize()));
         return c.AllGather(in, out);
       }},
      {"ReduceScatter",
       [](Communicator& c, int) {
         std::vector<float> in(kCount * static_cast<size_t>(c.WorldSize())), out(kCount);
         return c.ReduceScatter(in, out);
       }},
      {"AllReduce",
       [](Communicator& c, int) {
         std::vector<float> values(kCount);
         return c.AllReduce(values, values);
       }},
      {"Broadcast",
       [](Communicator& c, int victim) {
         std::vector<float> values(kCount);
         return c.Broadcast(values, victim);
       }},
      {"Reduce",
       [](Communicator& c, int victim) {
         std::vector<float> values(kCount);
         return c.Reduce(values, values, (victim + 1) % c.WorldSize());
       }},
      {"Gather",
       [](Communicator& c, int victim) {
         std::vector<float> in(kCount), out(kCount * static_cast<size_t>(c.WorldSize()));
         return c.Gather(in, out, (victim + 1) % c.WorldSize());
       }},
      {"AllToAll",
       [](Communicator& c, int) {
         std::vector<float> in(kCount * static_cast<size_t>(c.WorldSize())), out(in.size());
         return c.AllToAll(in, out);
       }},
      {"SendReceive",
       [](Communicator& c, int victim) {
         std::vector<float> in(kCount), out(kCount);
         return c.SendReceive(in, victim, out, victim);
       }},
      {"Barrier", [](Communicator& c, int) { return c.Barrier(); }},
  };
  return operations;
}

const std::map<std::string, CheckedOperation>& CheckedOperations() {
  static const std::map<std::string, CheckedOperation> operations = {
      {"AllReduce", Reduced},   {"AllGather", Gathered}, {"ReduceScatter", Scattered},
      {"Broadcast", Broadcast}, {"AllToAll", Exchanged}, {"SendReceive", PassedOn}};
  return operations;
}

std::string Use(const absl::StatusOr<Survivors>& survivors) {
  if (!survivors.ok()) return Text(survivors.status());
  Communicator& c = *survivors->communicator;
  std::vector<double> values(100'000, survivors->ranks[static_cast<size_t>(c.Rank())]);
  if (absl::Status s = c.AllReduce(values, values); !s.ok()) return Text(s);
  double expected = 0;
  for (const int rank : survivors->ranks) expected += rank;
  if (values != std::vector<double>(values.size(), expected)) return "a wrong sum";
  std::vector<int32_t> ranks(survivors->ranks.size());
  const std::vector<int32_t> own = {survivors->ranks[static_cast<size_t>(c.Rank())]};
  if (absl::Status s = c.AllGather(own, ranks); !s.ok()) return Text(s);
  if (ranks != std::vector<int32_t>(survivors->ranks.begin(), survivors->ranks.end())) {
    return "another order";
  }
  return absl::StrCat("good: ", absl::StrJoin(survivors->ranks, ","));
}

}  // namespace geminid::collectives
