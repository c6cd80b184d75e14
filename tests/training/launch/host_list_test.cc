// How hosts of a list join and leave a run, with hosts that are the test's own.
#include "training/launch/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// What the list tells it.
struct Heard {
  std::vector<int> ranks;  // of the last start
  std::string slots;
  std::vector<uint64_t> adopted;  // numbers of states; 0: nothing
  std::vector<std::pair<uint64_t, absl::Status>> answers;
  std::vector<int> signals;
  bool has_left = false;
};

class ListedHost final : public RankHost {
 public:
  ListedHost(std::string name, Heard* heard) : name_(std::move(name)), heard_(heard) {}
  std::string name() const override { return name_; }
  absl::Status Start(const std::vector<RankStart>& starts) override {
    heard_->ranks.clear();
    for (const RankStart& start : starts) {
      heard_->ranks.push_back(start.rank);
      for (const auto& [name, value] : start.environment) {
        if (name == kHostSlotsVariable) heard_->slots = value;
      }
    }
    wish.reset();
    return absl::OkStatus();
  }
  std::vector<RankState*> ranks() override { return {}; }
  void Signal(int signal) override { heard_->signals.push_back(signal); }
  void AddTo(std::vector<pollfd>*) const override {}
  void Look(absl::Time) override {}
  bool ready() const override { return is_ready; }
  absl::Status failure() const override { return failed; }
  void GiveUp(absl::Duration) override { failed = absl::DeadlineExceededError("too slow"); }
  void Leave() override { heard_->has_left = true; }
  std::optional<Handover> handover() const override { return state; }
  std::optional<MoveRequest> wanted() const override { return wish; }
  void Adopt(const std::optional<Handover>& handover) override {
    heard_->adopted.push_back(handover.has_value() ? handover->number : 0);
  }
  void Answer(uint64_t request, const absl::Status& status) override {
    heard_->answers.emplace_back(request, status);
  }

  bool is_ready = true;
  absl::Status failed;
  std::optional<Handover> state;
  std::optional<MoveRequest> wish;

 private:
  const std::string name_;
  Heard* const heard_;
};

class HostLists : public ::testing::Test {
 protected:
  HostLists() {
    HostList::Options options;
    options.hosts = {{"alpha", 2}, {"beta", 2}, {"me@gamma", 1}};
    options.reach = [this](const HostSlots& host, const std::optional<MoveRequest>& joins)
        -> absl::StatusOr<std::shared_ptr<RankHost>> {
      joins_[host.name] = joins;
      heard_[host.name].has_left = false;
      auto reached = std::make_shared<ListedHost>(host.name, &heard_[host.name]);
      reached->is_ready = !joins.has_value() || joins_at_once_;
      hosts_[host.name] = reached;
      return reached;
    };
    options.now = [this] { return now_; };
    list_ = std::make_unique<HostList>(std::move(options));
  }

  absl::Status Start(int ranks) {
    std::vector<RankStart> starts;
    for (int rank = 0; rank < ranks; ++rank) {
      starts.push_back({.rank = rank, .ranks = ranks, .arguments = {}, .environment = {}});
    }
    return list_->Start(starts);
  }
  void Begin(int ranks) {
    ASSERT_TRUE(list_->Connect(ranks).ok());
    ASSERT_TRUE(Start(ranks).ok());
  }
  std::shared_ptr<ListedHost> At(const std::string& name) { return hosts_[name].lock(); }
  void Want(uint64_t request, int ranks) {
    At("alpha")->wish = MoveRequest{.request = request, .ranks = ranks, .host_bytes = 400};
    list_->Look(now_);
  }
  void HandOver(uint64_t number) { At("alpha")->state = Handover{.number = number}; }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1);
  bool joins_at_once_ = true;
  std::map<std::string, Heard> heard_;
  std::map<std::string, std::weak_ptr<ListedHost>> hosts_;
  std::map<std::string, std::optional<MoveRequest>> joins_;
  std::unique_ptr<HostList> list_;
};

TEST_F(HostLists, OfAStart_GiveEachHostItsRanksInOrder) {
  Begin(3);
  EXPECT_THAT(heard_["alpha"].ranks, ElementsAre(0, 1));
  EXPECT_THAT(heard_["beta"].ranks, ElementsAre(2));
  EXPECT_EQ(heard_["beta"].slots, "2,2,1");
  EXPECT_FALSE(hosts_.contains("me@gamma")) << "it has no ranks";
  list_->Signal(15);
  EXPECT_THAT(heard_["beta"].signals, ElementsAre(15));
  EXPECT_EQ(list_->AddressOfFirst(3), "alpha");
  EXPECT_EQ(list_->AddressOfFirst(2), "127.0.0.1");
}

TEST_F(HostLists, ForMoreRanksThanSlots_SaySo) {
  EXPECT_THAT(std::string(list_->Connect(6).message()), HasSubstr("--hosts has 5 slots"));
}

TEST_F(HostLists, OfRanksThatWantMore_AnswerWhenTheHostsThatJoinAreReady) {
  joins_at_once_ = false;
  Begin(2);
  Want(7, 5);
  ASSERT_TRUE(joins_["beta"].has_value());
  EXPECT_EQ(joins_["beta"]->ranks, 2);
  EXPECT_EQ(joins_["beta"]->host_bytes, 160u);
  EXPECT_EQ(joins_["me@gamma"]->ranks, 1);
  At("beta")->is_ready = true;
  list_->Look(now_);
  EXPECT_THAT(heard_["alpha"].answers, IsEmpty());
  At("me@gamma")->is_ready = true;
  list_->Look(now_);
  list_->Look(now_);
  ASSERT_THAT(heard_["alpha"].answers, SizeIs(1));
  EXPECT_EQ(heard_["alpha"].answers[0], std::make_pair(uint64_t{7}, absl::OkStatus()));
  EXPECT_EQ(list_->wanted(), std::nullopt) << "the run does not leave the list";
}

TEST_F(HostLists, OfAHostThatCannotJoin_SayWhyAndLetGoOfAllThatJoined) {
  joins_at_once_ = false;
  Begin(2);
  Want(7, 5);
  At("me@gamma")->failed = absl::ResourceExhaustedError("gamma: it is full");
  list_->Look(now_);
  list_->Look(now_);
  ASSERT_THAT(heard_["alpha"].answers, SizeIs(1));
  EXPECT_EQ(heard_["alpha"].answers[0].second, absl::ResourceExhaustedError("gamma: it is full"));
  At("alpha")->wish.reset();
  list_->Look(now_);
  EXPECT_TRUE(heard_["beta"].has_left);
  EXPECT_EQ(At("beta"), nullptr);
  EXPECT_FALSE(heard_["alpha"].has_left);
}

TEST_F(HostLists, OfAHostThatIsNotReadyInTime_GiveItUp) {
  joins_at_once_ = false;
  Begin(2);
  Want(7, 4);
  EXPECT_EQ(list_->look_by(), now_ + absl::Seconds(60));
  now_ += absl::Seconds(60);
  list_->Look(now_);
  ASSERT_THAT(heard_["alpha"].answers, SizeIs(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(heard_["alpha"].answers[0].second));
}

TEST_F(HostLists, OfStateThatIsWhole_TellTheOthersBeforeTheNextRanks) {
  Begin(2);
  Want(7, 4);
  HandOver(3);
  ASSERT_TRUE(Start(4).ok());
  EXPECT_THAT(heard_["beta"].adopted, ElementsAre(3));
  EXPECT_THAT(heard_["alpha"].adopted, IsEmpty()) << "it has the state itself";
  list_->Look(now_);
  EXPECT_THAT(heard_["beta"].adopted, ElementsAre(3));
  At("alpha")->state.reset();
  list_->Look(now_);
  list_->Look(now_);
  EXPECT_THAT(heard_["beta"].adopted, ElementsAre(3, 0));
}

TEST_F(HostLists, OfAStartWithoutState_TellTheOthersThatThereIsNone) {
  Begin(4);
  EXPECT_THAT(heard_["beta"].adopted, ElementsAre(0));
}

TEST_F(HostLists, OfFewerRanks_HoldTheirHostsUntilTheStateIsNotNeeded) {
  Begin(4);
  HandOver(3);
  ASSERT_TRUE(Start(2).ok());
  list_->Look(now_);
  ASSERT_NE(At("beta"), nullptr) << "the run may go back to it";
  ASSERT_TRUE(Start(4).ok());
  EXPECT_THAT(heard_["beta"].ranks, ElementsAre(2, 3));
  ASSERT_TRUE(Start(2).ok());
  At("alpha")->state.reset();
  list_->Look(now_);
  EXPECT_EQ(At("beta"), nullptr);
  EXPECT_TRUE(heard_["beta"].has_left);
}

TEST_F(HostLists, OfAHostThatIsLost_StartNoRankThatWouldWaitForIt) {
  Begin(2);
  Want(7, 4);
  HandOver(3);
  heard_["alpha"].ranks.clear();
  At("beta")->failed = absl::UnavailableError("beta is lost");
  EXPECT_EQ(Start(4), absl::UnavailableError("beta is lost"));
  EXPECT_THAT(heard_["alpha"].ranks, IsEmpty());
  EXPECT_THAT(list_->lost(), ElementsAre("beta"));
  ASSERT_TRUE(Start(2).ok());
  EXPECT_THAT(heard_["alpha"].ranks, ElementsAre(0, 1));
  EXPECT_THAT(list_->lost(), IsEmpty()) << "the run does without it";
}

TEST_F(HostLists, OfARunThatGoesToAnotherHost_PassTheWishOn) {
  Begin(2);
  At("alpha")->wish = MoveRequest{.request = 7, .host = "delta", .ranks = 2};
  list_->Look(now_);
  EXPECT_EQ(list_->wanted()->host, "delta");
  EXPECT_FALSE(hosts_.contains("beta"));
}

}  // namespace
}  // namespace geminid::trainer
