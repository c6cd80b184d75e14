#include "collectives/tcp/group_news.h"

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
  void OnDeath(const Death& death) override { words.push_back(absl::StrCat("died: ", death.rank)); }
  void OnLeave(int world_rank) override { words.push_back(absl::StrCat("left: ", world_rank)); }

  std::vector<std::string> words;
};

TEST(GroupNews, OfItsGroupAndOfEveryDeath_AListenerHears) {
  GroupNews news;
  Heard mine;
  Heard others;
  news.Listen("a", &mine);
  news.Listen("b", &others);
  news.Left("a", 3);
  news.Failed("a", absl::InternalError("broken"));
  news.Died({.rank = 2});
  EXPECT_THAT(mine.words, ElementsAre("left: 3", "failed: broken", "died: 2"));
  EXPECT_THAT(others.words, ElementsAre("died: 2"));
  EXPECT_TRUE(news.IsDead(2));
  EXPECT_FALSE(news.IsDead(3));
}

TEST(GroupNews, WhatCameBefore_ALateListenerHearsWithTheFirstFailureAlone) {
  GroupNews news;
  news.Failed("a", absl::InternalError("first"));
  news.Failed("a", absl::InternalError("second"));
  news.Died({.rank = 1});
  news.Left("a", 0);
  Heard late;
  news.Listen("a", &late);
  EXPECT_THAT(late.words, ElementsAre("failed: first", "died: 1", "left: 0"));
}

TEST(GroupNews, WhoNoLongerListens_HearsNothing) {
  GroupNews news;
  Heard gone;
  news.Listen("a", &gone);
  news.Unlisten("a");
  news.Left("a", 1);
  news.Died({.rank = 1});
  EXPECT_THAT(gone.words, IsEmpty());
}

}  // namespace
}  // namespace geminid::collectives
