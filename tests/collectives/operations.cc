#include "tests/collectives/operations.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace geminid::collectives {
namespace {

constexpr size_t kCount = 60'000;

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
