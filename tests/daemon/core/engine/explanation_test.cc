#include "daemon/core/engine/explanation.h"

#include <functional>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace geminid::core {
namespace {

using shm::ChunkState;
using shm::Residency;
using ::testing::HasSubstr;

// The claim of a phrase. Two claims of one thing with different values contradict each other.
struct Claim {
  const char* phrase;
  const char* thing;
  const char* value;
};
constexpr Claim kClaims[] = {
    {"lives on the device only", "device copy", "there"},
    {"It is resident", "device copy", "there"},
    {"being filled", "device copy", "there"},
    {"is being evicted", "device copy", "there"},
    {"It has no copy on", "device copy", "none"},
    {"no copy on", "device copy", "none"},
    {"the device copy is newer", "device copy", "there"},
    {"It is resident", "device copy is valid", "yes"},
    {"the device copy is newer", "device copy is valid", "yes"},
    {"not yet valid", "device copy is valid", "no"},
    {"its home is in pool", "home", "there"},
    {"It is on host", "home", "there"},
    {"newer than its home", "home", "there"},
    {"no home", "home", "none"},
    {"the only one", "home", "none"},
    {"are evicted first", "may leave", "yes"},
    {"is evicted first", "may leave", "yes"},
    {"would be evicted", "may leave", "yes"},
    {"cannot be evicted", "may leave", "no"},
    {"The plan uses it", "used by the plan", "yes"},
    {"The plan does not use it", "used by the plan", "no"},
    {"no plan", "plan", "none"},
    {"The plan", "plan", "there"},
    {"state FREE", "payload", "none"},
    {"no payload", "payload", "none"},
    {"state HOLD", "payload", "there"},
    {"state COMPUTE", "payload", "there"},
    {"state READY", "payload", "there"},
};

std::string ContradictionIn(const std::vector<std::string>& lines) {
  const std::string text = absl::StrJoin(lines, "\n");
  std::map<std::string, const Claim*> claimed;
  for (const Claim& claim : kClaims) {
    if (!absl::StrContains(text, claim.phrase)) continue;
    const auto [at, first] = claimed.try_emplace(claim.thing, &claim);
    if (!first && std::string(at->second->value) != claim.value) {
      return absl::StrCat("'", at->second->phrase, "' against '", claim.phrase, "' in:\n", text);
    }
  }
  return "";
}

// The engine's wording for the same facts.
std::string WhyNot(const ChunkFacts& facts, bool leased) {
  if (facts.status.residency == Residency::kFilling) return "its device copy is being filled";
  if (facts.status.residency != Residency::kResident) return "it has no device copy";
  if (facts.other_transfers > 0) return "1 transfer uses its device copy";
  if (facts.status.state != ChunkState::kHold && facts.status.state != ChunkState::kFree) {
    return "only HOLD and FREE can be evicted";
  }
  if (facts.status.dirty && facts.identity.has_home()) return "it is newer than its home";
  if (facts.status.dirty) return "its device copy was written and is the only one";
  if (!facts.identity.has_home() && facts.identity.kind != ChunkKind::kGatheredWeight &&
      facts.status.state != ChunkState::kFree) {
    return "its device copy is the only one";
  }
  return leased ? "it is leased" : "";
}

enum class Plan { kNone, kWithout, kNow, kLater };

// Calls `visit` with every combination of state, residency, home, dirty, lease, transfer and plan.
void ForEachCombination(const std::function<void(const ChunkFacts&)>& visit) {
  ChunkFacts facts;
  facts.name = "layer.0";
  facts.job = "demo";
  facts.identity.bytes = 4096;
  facts.device = DeviceAccount(DeviceIndex{0});
  facts.place = {.number = 2, .of = 3, .before_bytes = 4096, .largest_hole_bytes = 0};
  for (unsigned bits = 0; bits < 64; ++bits) {
    facts.identity.pool = (bits & 1) != 0 ? PoolId{1} : kNoPool;
    facts.identity.kind = (bits & 2) != 0 ? ChunkKind::kGatheredWeight : ChunkKind::kWeight;
    const bool leased = (bits & 4) != 0;
    facts.status.dirty = (bits & 8) != 0;
    facts.other_transfers = (bits & 16) != 0 ? 1 : 0;
    facts.client_died = (bits & 32) != 0;
    for (int state = 0; state < shm::kChunkStates; ++state) {
      facts.status.state = static_cast<ChunkState>(state);
      for (const Residency residency :
           {Residency::kAbsent, Residency::kFilling, Residency::kResident, Residency::kEvictPending,
            Residency::kEvicting}) {
        facts.status.residency = residency;
        facts.why_not_evictable = WhyNot(facts, leased);
        for (const Plan plan : {Plan::kNone, Plan::kWithout, Plan::kNow, Plan::kLater}) {
          facts.plan_moments = plan == Plan::kNone ? 0 : 8;
          facts.next_use.reset();
          const bool known = facts.status.state != ChunkState::kFree;
          if (plan == Plan::kNow && known) facts.next_use = 0;
          if (plan == Plan::kLater && known) facts.next_use = 3;
          visit(facts);
        }
      }
    }
  }
}

TEST(Explain, NoCombination_ContradictsItself) {
  int combinations = 0;
  ForEachCombination([&](const ChunkFacts& facts) {
    ++combinations;
    EXPECT_EQ(ContradictionIn(Explain(facts)), "");
  });
  EXPECT_EQ(combinations, 64 * 5 * 5 * 4);
}

TEST(Explain, EverySentence_EndsAndIsSaidOnce) {
  ForEachCombination([](const ChunkFacts& facts) {
    std::set<std::string> seen;
    for (const std::string& line : Explain(facts)) {
      EXPECT_EQ(line.back(), '.') << line;
      EXPECT_TRUE(seen.insert(line).second) << line;
    }
  });
}

TEST(ContradictionIn, SentencesThatOnceWereSaid_AreFound) {
  EXPECT_THAT(ContradictionIn({"The plan does not use it: such chunks are evicted first.",
                               "It cannot be evicted: it is leased."}),
              HasSubstr("'are evicted first' against 'cannot be evicted'"));
  EXPECT_NE(ContradictionIn(
                {"It has no home: it lives on the device only.", "It has no copy on device 0."}),
            "");
  EXPECT_EQ(ContradictionIn({"It is on host: its home is in pool 1.", "It has no copy on device 0."}),
            "");
}

TEST(Explain, OfWhatIsOnHostAlone_SaysSo) {
  ChunkFacts facts;
  facts.device = DeviceAccount(DeviceIndex{0});
  facts.identity.pool = PoolId{2};
  facts.status.residency = Residency::kAbsent;
  EXPECT_EQ(Explain(facts)[1],
            "It is on host: its home is in pool 2 at offset 0. It has no copy on device 0.");
}

TEST(Explain, OfGatheredWeightsThatAreNowhere_SaysWhenceTheyComeAndWhen) {
  ChunkFacts facts;
  facts.device = DeviceAccount(DeviceIndex{0});
  facts.identity.kind = ChunkKind::kGatheredWeight;
  facts.status.residency = Residency::kAbsent;
  facts.status.state = ChunkState::kHold;
  facts.plan_moments = 8;
  facts.next_use = 3;
  const std::vector<std::string> lines = Explain(facts);
  EXPECT_EQ(lines[1],
            "It has no home in host memory, and no copy on device 0 now: its contents are gathered "
            "from the ranks' shards, which are other chunks, when an operator uses it.");
  EXPECT_EQ(lines[2], "The plan uses it next in 3 moments (now is moment 0 of 8).");
}

TEST(Explain, OneAndSeveral_AreCountedInWords) {
  ChunkFacts facts;
  facts.status.residency = Residency::kResident;
  facts.status.state = ChunkState::kHold;
  facts.plan_moments = 8;
  facts.next_use = 1;
  facts.other_transfers = 1;
  const std::string text = absl::StrJoin(Explain(facts), "\n");
  EXPECT_THAT(text, HasSubstr("next in 1 moment ("));
  EXPECT_THAT(text, HasSubstr("1 transfer that touches it is queued"));
}

}  // namespace
}  // namespace geminid::core
