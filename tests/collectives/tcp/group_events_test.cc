#include "collectives/tcp/group_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace geminid::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Heard : public GroupListener {
 public:
  void OnFailure(const absl::Status& status) override {
    words.push_back(absl::StrCat("failed: ", status.message()));
  }
  void OnDeath(const RankDeath& death) override {
    words.push_back(absl::StrCat("died: ", death.rank));
  }
  void OnLeave(int world_rank) override { words.push_back(absl::StrCat("left: ", world_rank)); }

  std::vector<std::string> words;
};

TEST(GroupEvents, OfItsGroupAndOfEveryDeath_AListenerHears) {
  GroupEvents events;
  Heard mine;
  Heard others;
  events.Listen("a", &mine);
  events.Listen("b", &others);
  events.Left("a", 3);
  events.Failed("a", absl::InternalError("broken"));
  events.Died({.rank = 2});
  EXPECT_THAT(mine.words, ElementsAre("left: 3", "failed: broken", "died: 2"));
  EXPECT_THAT(others.words, ElementsAre("died: 2"));
  EXPECT_TRUE(events.IsDead(2));
  EXPECT_FALSE(events.IsDead(3));
}

TEST(GroupEvents, WhatCameBefore_ALateListenerHearsWithTheFirstFailureAlone) {
  GroupEvents events;
  events.Failed("a", absl::InternalError("first"));
  events.Failed("a", absl::InternalError("second"));
  events.Died({.rank = 1});
  events.Left("a", 0);
  Heard late;
  events.Listen("a", &late);
  EXPECT_THAT(late.words, ElementsAre("failed: first", "died: 1", "left: 0"));
}

TEST(GroupEvents, WhoNoLongerListens_HearsNothing) {
  GroupEvents events;
  Heard gone;
  events.Listen("a", &gone);
  events.Unlisten("a");
  events.Left("a", 1);
  events.Died({.rank = 1});
  EXPECT_THAT(gone.words, IsEmpty());
}

}  // namespace
}  // namespace geminid::collectives
