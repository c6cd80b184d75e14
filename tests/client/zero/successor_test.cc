// Ranks die at every point of a step, alone and together, and replacement ranks go on. The bits are
// those of an undisturbed run.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/zero/basics/crash_points.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "tests/base/long_tests.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/zero/successor_runs.h"
#include "tests/daemon_env/daemon_env.h"

extern char** environ;

namespace geminid::zero {
namespace {

using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Ne;

constexpr int kLastPointOfAStep = 9;  // in kCrashPoints; later points belong to replacement ranks

// The fate of a rank at a crash point.
struct Fate {
  std::string what = "";  // "kill", "hold"; empty: it lives
  std::string point{};
  int count = 1;  // the number of visits before it happens
};

class RankProcess {
 public:
  RankProcess(const std::vector<std::string>& arguments, const std::string& output,
              const std::string& words) {
    std::vector<char*> argv;
    std::vector<std::string> copies = arguments;
    for (std::string& argument : copies) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, words.c_str(), kFlags, 0600);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  // Waits until the process ends or stops. Kills a stopped process.
  int Wait() {
    int status = 0;
    EXPECT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
    if (!WIFSTOPPED(status)) return status;
    kill(pid_, SIGKILL);
    EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
    return status;
  }

 private:
  pid_t pid_ = -1;
};

class SuccessorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(env_.Start().ok());
    for (const char* disk : {"disks/a", "disks/b"}) {
      std::filesystem::create_directories(folder_ / disk);
    }
    setenv(kSuccessorDisk, (folder_ / "disks").c_str(), /*overwrite=*/1);
  }

  // Runs both ranks until both have ended. Returns how rank 0 and rank 1 ended, as waitpid says.
  std::vector<int> Start(const std::string& name, bool resume, const std::vector<Fate>& fates) {
    std::vector<RankProcess> ranks;
    for (int rank = 0; rank < kSuccessorRanks; ++rank) {
      const Fate& fate = fates[static_cast<size_t>(rank)];
      std::vector<std::string> arguments = {
          GEMINID_SUCCESSOR_RANK, env_.socket(),     RunName(), name,
          absl::StrCat(rank),     resume ? "1" : "0"};
      if (!fate.what.empty()) {
        arguments.insert(arguments.end(), {fate.what, fate.point, absl::StrCat(fate.count)});
      }
      ranks.emplace_back(arguments, File("output", rank), File("words", rank));
    }
    // Waits first for the rank that is killed. A rank that is held ends in its turn.
    std::vector<int> ends(ranks.size());
    const size_t first = fates[0].what == "hold" ? 1 : 0;
    ends[first] = ranks[first].Wait();
    ends[1 - first] = ranks[1 - first].Wait();
    return ends;
  }

  // Rank 0 dies in its fourth step, before rank 1 records this step.
  void InterruptFourthStep(const std::string& name) {
    const std::vector<int> ends =
        Start(name, false, {{"kill", "tensors flipped", 4}, {"hold", "update prepared", 4}});
    ASSERT_TRUE(WasKilled(ends[0]) && WasKilled(ends[1])) << Words();
  }

  // Whether one of `victims` passes this point as a replacement in the interrupted fourth step.
  static bool ComesBy(const std::string& name, const std::vector<int>& victims,
                      std::string_view point) {
    if (point == "spare brought") return name == "moved";
    const bool is_behind = std::ranges::find(victims, 1) != victims.end();
    return is_behind || (point != "step passed" && point != "behind recorded");
  }

  // Kills the `victims` among the replacements at each point that they pass, in order. The next
  // replacements go on from the state of the dead ones. In long tests each point has a run of its
  // own, and points that no rank passes are tested, too.
  void KillSuccessorsAtEveryPoint(const std::string& name, const std::vector<int>& victims,
                                  int least_step) {
    if (!LongTests()) {
      ASSERT_NO_FATAL_FAILURE(InterruptFourthStep(name));
    }
    for (size_t p = kLastPointOfAStep; p < std::size(kCrashPoints); ++p) {
      SCOPED_TRACE(
          absl::StrCat(name, ", ranks ", absl::StrJoin(victims, " and "), ", ", kCrashPoints[p]));
      const bool comes_by = ComesBy(name, victims, kCrashPoints[p]);
      if (!LongTests() && !comes_by) continue;
      if (LongTests()) {
        ASSERT_NO_FATAL_FAILURE(InterruptFourthStep(name));
      }
      std::vector<Fate> fates(kSuccessorRanks);
      for (const int victim : victims) {
        fates[static_cast<size_t>(victim)] = {"kill", kCrashPoints[p], 1};
      }
      const std::vector<int> ends = Start(name, true, fates);
      ASSERT_EQ(std::ranges::any_of(ends, WasKilled), comes_by) << Words();
      if (LongTests() && comes_by) {
        EXPECT_GE(MustFinish(name), least_step);
      }
      if (!comes_by) ++run_;
    }
    if (!LongTests()) {
      EXPECT_GE(MustFinish(name), least_step);
    }
  }

  // Claims the state of rank `rank` and ends it.
  void EndKept(int rank) {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.job = SuccessorRun("").job;
    connect.run = RunName();
    connect.rank = connect.local_rank = rank;
    connect.world_size = kSuccessorRanks;
    const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE((*session)->is_successor());
  }

  std::string File(const std::string& what, int rank) const {
    return absl::StrCat(folder_.path(), "/", what, rank);
  }
  // Ranks of other tests may meet at the same time.
  std::string RunName() const { return absl::StrCat("run-", ::getpid(), "-", run_); }

  std::string Words() const {
    std::string words;
    for (int rank = 0; rank < kSuccessorRanks; ++rank) {
      std::stringstream read;
      read << std::ifstream(File("words", rank)).rdbuf();
      absl::StrAppend(&words, "rank ", rank, ": ", read.str());
    }
    return words;
  }

  // Starts the ranks for the last time. They must succeed with the weights of an undisturbed run.
  // Returns the step from which they resumed.
  int MustFinish(const std::string& name) {
    EXPECT_THAT(Start(name, /*resume=*/true, {{}, {}}), ::testing::Each(Eq(0))) << Words();
    std::ifstream output(File("output", 0));
    std::string line;
    std::getline(output, line);
    const int from = std::atoi(line.c_str());
    std::vector<float> weights;
    for (const std::vector<float>& expected : Expected(name)) {
      const size_t bytes = expected.size() * sizeof(float);
      weights.resize(expected.size());
      output.read(reinterpret_cast<char*>(weights.data()), static_cast<std::streamsize>(bytes));
      EXPECT_TRUE(output.good() && std::memcmp(weights.data(), expected.data(), bytes) == 0)
          << "some of " << expected.size() << " weights differ";
    }
    EXPECT_EQ(output.get(), std::ifstream::traits_type::eof());
    ExpectNothingIsKept();
    ++run_;
    return from;
  }

  // Ranks of `after` are refused what ranks of `before` left, which then others of `before` have.
  void ExpectRefusedAndNothingLost(const std::string& before, const std::string& after) {
    const std::vector<int> ends =
        Start(before, false, {{"kill", "granule flipped", 40}, {"kill", "granule written", 45}});
    ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
    EXPECT_THAT(Start(after, /*resume=*/true, {{}, {}}), ::testing::Each(::testing::Ne(0)));
    EXPECT_THAT(Words(), ::testing::AllOf(::testing::HasSubstr("left its state after step"),
                                          ::testing::HasSubstr("the most similar allocation has")));
    EXPECT_GE(MustFinish(before), 1);
  }

  const std::vector<std::vector<float>>& Expected(const std::string& name) {
    static auto* const of_all_tests = new std::map<std::string, std::vector<std::vector<float>>>;
    std::vector<std::vector<float>>& expected = (*of_all_tests)[name];
    if (expected.empty()) {
      SyntheticRun run = SuccessorRun(name);
      run.socket = env_.socket();
      absl::StatusOr<SyntheticResult> result = Train(run);
      EXPECT_TRUE(result.ok()) << result.status();
      if (result.ok()) expected = result->weights;
    }
    return expected;
  }

  void ExpectNothingIsKept() {
    env_.daemon().hub().Inspect([](const core::Engine& engine, const auto& sessions) {
      EXPECT_TRUE(sessions.empty());
      EXPECT_EQ(engine.Check(), absl::OkStatus());
      EXPECT_EQ(engine.ledger().Totals(core::kHostAccount).reserved_bytes, 0u);
    });
    EXPECT_THAT(FilesOnDisks(), ::testing::IsEmpty());
  }
  std::vector<std::string> FilesOnDisks() const {
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "disks")) {
      if (entry.is_regular_file()) files.push_back(entry.path().string());
    }
    return files;
  }

  // A point that a rank reaches alone after the other one has agreed to the step. Sums over the
  // ranks come in between.
  static const char* HeldAt(const std::string& name) {
    return name.ends_with("lamb") || name.ends_with("came") ? "update prepared" : "step agreed";
  }
  static bool WasKilled(int end) { return WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL; }

  geminid::testing::DaemonEnv env_;
  base::TemporaryFolder folder_;
  int run_ = 0;
};

class SuccessorDeathsTest : public SuccessorTest {};

// Rank 0 dies at about each point of its fourth step. The other rank notices and leaves its own
// state.
TEST_F(SuccessorDeathsTest, OneRankKilledAtEveryPoint_BothGoOnFromTheirLastStep) {
  for (const std::string name : {"tight", "apart", "streamed", "disk"}) {
    for (int p = 0; p < kLastPointOfAStep; ++p) {
      SCOPED_TRACE(absl::StrCat(name, ", ", kCrashPoints[p]));
      const bool is_piece = std::string_view(kCrashPoints[p]) == "slice updated";
      if (is_piece && name != "streamed") continue;
      const bool is_extent = std::string_view(kCrashPoints[p]) == "extent leaving";
      if (is_extent && name != "disk") continue;
      const bool is_granule =
          is_piece || is_extent || std::string_view(kCrashPoints[p]).starts_with("granule");
      const std::vector<int> ends =
          Start(name, false, {{"kill", kCrashPoints[p], is_granule ? 50 : 4}, {}});
      ASSERT_TRUE(WasKilled(ends[0])) << Words();
      EXPECT_THAT(MustFinish(name), AnyOf(3, 4));
    }
  }
}

TEST_F(SuccessorTest, OneRankBehindTheOther_IsToldTheStep) {
  for (const std::string name :
       {"tight", "device", "disk", "lamb", "came", "summed", "second", "first", "overflow", "apart",
        "apart overflow", "apart lamb", "apart came", "disk came"}) {
    SCOPED_TRACE(name);
    // A rank that is held where it agreed to a step has not recorded it, unlike the other rank.
    const int step = name.ends_with("overflow") ? 3 : 4;
    const std::vector<int> ends =
        Start(name, false, {{"kill", "step recorded", step}, {"hold", HeldAt(name), step}});
    ASSERT_TRUE(WasKilled(ends[0]) && WasKilled(ends[1])) << Words();
    EXPECT_EQ(MustFinish(name), step);
  }
}

// Rank 0, whose weights are checked, is behind.
TEST_F(SuccessorTest, OneEngineBehindThoseOfOtherParts_IsToldTheStep) {
  for (const std::string name : {"apart", "apart overflow", "apart lamb", "apart came"}) {
    SCOPED_TRACE(name);
    const int step = name.ends_with("overflow") ? 3 : 4;
    const std::vector<int> ends =
        Start(name, false, {{"hold", HeldAt(name), step}, {"kill", "step recorded", step}});
    ASSERT_TRUE(WasKilled(ends[0]) && WasKilled(ends[1])) << Words();
    EXPECT_EQ(MustFinish(name), step);
  }
}

TEST_F(SuccessorTest, StateOfEveryKindAndPlace_IsFinishedInTheMiddleOfAnUpdate) {
  for (const std::string name : {"moved", "device", "lamb", "came", "left out", "summed", "first",
                                 "hosts", "small", "small moved", "small lamb", "muon"}) {
    for (const char* point : {"granule written", "granule flipped"}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", point));
      // A granule of whole matrices holds several of them.
      const int granules = name == "muon" ? 8 : 40;
      const std::vector<int> ends =
          Start(name, false, {{"kill", point, granules}, {"kill", point, granules + 1}});
      ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
      EXPECT_GE(MustFinish(name), 1);
    }
  }
}

// Some of a granule's new version is in its spare, and some in places of the arena, which vanish.
TEST_F(SuccessorTest, StreamedState_IsFinishedWhereverItsPiecesWere) {
  for (const std::string name : {"streamed", "streamed tight", "streamed lamb"}) {
    for (const char* point : {"slice updated", "granule written", "granule flipped"}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", point));
      const std::vector<int> ends = Start(name, false, {{"kill", point, 40}, {"kill", point, 45}});
      ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
      EXPECT_GE(MustFinish(name), 1);
    }
  }
}

class SuccessorOnDiskTest : public SuccessorTest {};

// Some of a granule's new version is in its spare extent, and none of it is used.
TEST_F(SuccessorOnDiskTest, StateOnDisk_IsFinishedWhereverItsExtentsWere) {
  for (const std::string name : {"disk", "disk tight", "small on disk", "disk lamb"}) {
    for (const char* point : {"extent leaving", "granule written", "granule flipped"}) {
      SCOPED_TRACE(absl::StrCat(name, ", ", point));
      const std::vector<int> ends = Start(name, false, {{"kill", point, 40}, {"kill", point, 45}});
      ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
      EXPECT_EQ(FilesOnDisks().size(), 4u);
      EXPECT_GE(MustFinish(name), 1);
    }
  }
}

// The values wait in host memory for more of their granule, until a step is recorded.
TEST_F(SuccessorOnDiskTest, StateOnDiskThatWasSetBeforeTheFirstStep_IsThereForASuccessor) {
  for (const std::string name : {"disk", "disk overflow"}) {
    SCOPED_TRACE(name);
    const std::vector<int> ends =
        Start(name, false, {{"kill", "step recorded", 1}, {"kill", "step recorded", 1}});
    ASSERT_TRUE(WasKilled(ends[0]) && WasKilled(ends[1])) << Words();
    EXPECT_EQ(MustFinish(name), 1);
  }
}

// One rank's state is lost, so no rank resumes. All begin anew with new files.
TEST_F(SuccessorOnDiskTest, StateOnDiskThatIsGone_IsNotGoneOnFrom) {
  using Mishap = std::function<void(const std::string& file)>;
  const std::map<std::string, Mishap> mishaps = {
      {"removed", [](const std::string& file) { std::filesystem::remove(file); }},
      {"truncated", [](const std::string& file) { std::filesystem::resize_file(file, 1 << 20); }}};
  for (const auto& [what, happens] : mishaps) {
    SCOPED_TRACE(what);
    Start("disk", false, {{"kill", "granule flipped", 40}, {"kill", "granule flipped", 40}});
    int met = 0;
    for (const std::string& file : FilesOnDisks()) {
      if (file.find("rank1") == std::string::npos) continue;
      happens(file);
      ++met;
    }
    EXPECT_GT(met, 0);
    EXPECT_EQ(MustFinish("disk"), 0);
  }
}

// The file is not overwritten.
TEST_F(SuccessorOnDiskTest, FileOnDiskThatIsNotKnownToBeGeminids_IsRefused) {
  Start("disk", false, {{"kill", "granule flipped", 40}, {"kill", "granule flipped", 40}});
  for (const std::string& file : FilesOnDisks()) {
    if (file.find("rank1") == std::string::npos) continue;
    constexpr off_t kIdentity = 8;
    const int fd = open(file.c_str(), O_WRONLY);
    EXPECT_EQ(pwrite(fd, "another.", 8, kIdentity), 8);
    close(fd);
  }
  EXPECT_THAT(Start("disk", true, {{}, {}}), ::testing::Contains(Ne(0)));
  EXPECT_THAT(Words(), HasSubstr("geminid did not create it"));
}

TEST_F(SuccessorOnDiskTest, SuccessorsThatHaveStateOnDiskOrNoLonger_AreRefusedAndLoseNothing) {
  for (const auto& [before, after] : {std::pair{"disk", "tight"}, std::pair{"tight", "disk"}}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    ExpectRefusedAndNothingLost(before, after);
  }
}

// Host memory holds only a part of the state.
class SuccessorInLittleMemoryTest : public SuccessorOnDiskTest {
 protected:
  void SetUp() override {
    SuccessorOnDiskTest::SetUp();
    Expected(kName);  // with enough memory, so that nothing is on disk
    SetHostMemory(kHostMemory);
  }
  void SetHostMemory(const std::string& size) {
    env_.Stop();
    ASSERT_TRUE(env_.Start({.host_memory = size}).ok());
  }
  static constexpr char kName[] = "some on disk";
  static constexpr char kHostMemory[] = "27100KiB";  // most of it for memory that the ranks share
};

TEST_F(SuccessorInLittleMemoryTest, StateSomeOfWhichIsOnDisk_IsFinishedWhereverEachOfItWas) {
  for (const char* point : {"extent leaving", "granule written", "granule flipped"}) {
    SCOPED_TRACE(point);
    // Granules with state in host memory are updated first.
    const int count = std::string_view(point) == "extent leaving" ? 12 : 60;
    const std::vector<int> ends =
        Start(kName, false, {{"kill", point, count}, {"kill", point, count + 5}});
    ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
    EXPECT_EQ(FilesOnDisks().size(), 4u);
    EXPECT_GE(MustFinish(kName), 1);
  }
}

// The chunks on disk were chosen once. The replacements alone would choose fewer.
TEST_F(SuccessorInLittleMemoryTest, SuccessorsWithMoreHostMemory_GoOnWithWhatIsOnDisk) {
  {
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.job = "another";
    const absl::StatusOr<std::unique_ptr<Session>> another = Session::Connect(connect);
    ASSERT_TRUE(another.ok()) << another.status();
    ASSERT_TRUE((*another)->Allocate({{"taken", ChunkKind::kGeneric, 400 << 10}}).ok());
    Start(kName, false, {{"kill", "granule flipped", 60}, {"kill", "granule flipped", 65}});
  }
  EXPECT_GE(MustFinish(kName), 1);
}

// The state's home is on the host, no matter which place updates it.
TEST_F(SuccessorTest, SuccessorsThatStreamStateOrNoLonger_GoOnWithTheSameBits) {
  for (const auto& [before, after] :
       {std::pair{"streamed tight", "tight"}, std::pair{"tight", "streamed tight"}}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    const std::vector<int> ends =
        Start(before, false, {{"kill", "granule flipped", 40}, {"kill", "granule written", 45}});
    ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
    EXPECT_GE(MustFinish(after), 1);
  }
}

// Each of these stages commits the shard.
TEST_F(SuccessorTest, SuccessorsInAnotherStage_GoOnWithTheSameBits) {
  for (const auto& [before, after] :
       {std::pair{"second", "summed"}, std::pair{"summed", "second"}}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    const std::vector<int> ends =
        Start(before, false, {{"kill", "granule flipped", 40}, {"kill", "granule written", 45}});
    ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
    EXPECT_GE(MustFinish(after), 1);
  }
}

// The weights that a host's ranks share are not part of a rank's state.
TEST_F(SuccessorTest, SuccessorsThatShardWeightsWithinHostsOrNoLonger_GoOnWithTheSameBits) {
  for (const auto& [before, after] : {std::pair{"hosts", "tight"}, std::pair{"tight", "hosts"}}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    const std::vector<int> ends =
        Start(before, false, {{"kill", "granule flipped", 40}, {"kill", "granule written", 45}});
    ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
    EXPECT_GE(MustFinish(after), 1);
  }
}

// The ranks are refused before they reach their state.
TEST_F(SuccessorTest, SuccessorsThatAreRefused_LoseNothing) {
  const std::vector<int> ends =
      Start("tight", false, {{"kill", "granule flipped", 40}, {"kill", "granule written", 45}});
  ASSERT_TRUE(WasKilled(ends[0]) || WasKilled(ends[1])) << Words();
  for (const std::string refused : {"negative", "one host", "tight adam"}) {
    EXPECT_THAT(Start(refused, true, {{}, {}}), ::testing::Each(::testing::Ne(0)));
  }
  EXPECT_GE(MustFinish("tight"), 1);
}

// The first stage has gradients of another size, and state in bf16 has another size than in fp32.
TEST_F(SuccessorTest, SuccessorsOfAnotherStageOrStateType_AreRefusedAndLoseNothing) {
  for (const auto& [before, after] : {std::pair{"first", "summed"}, std::pair{"second", "first"},
                                      std::pair{"tight", "small"}, std::pair{"small", "tight"}}) {
    SCOPED_TRACE(absl::StrCat(before, " to ", after));
    ExpectRefusedAndNothingLost(before, after);
  }
}

TEST_F(SuccessorTest, SuccessorsThatDoNotResume_FreeStateOfAnotherForm) {
  Start("tight", false, {{"kill", "granule flipped", 40}, {"kill", "granule written", 45}});
  EXPECT_THAT(Start("small", /*resume=*/false, {{}, {}}), ::testing::Each(Eq(0))) << Words();
  ExpectNothingIsKept();
}

// Replacements die at every point of their own as well, and their replacements finish the step.
TEST_F(SuccessorDeathsTest, SuccessorsKilledAtEveryPoint_HaveSuccessors) {
  for (const std::string name : {"moved", "lamb", "apart", "apart came"}) {
    KillSuccessorsAtEveryPoint(name, {0, 1}, /*least_step=*/2);
  }
}

// The living rank gets an error while its engine is made, and ends without losing its state.
TEST_F(SuccessorDeathsTest, OneSuccessorKilledAtEveryPoint_TheOtherLosesNothing) {
  for (const std::string name : {"moved", "apart"}) {
    for (int victim = 0; victim < kSuccessorRanks; ++victim) {
      KillSuccessorsAtEveryPoint(name, {victim}, /*least_step=*/3);
    }
  }
}

// The job is evicted from its device in the third step. Its state goes to host memory, and comes
// back.
class SuccessorEvictedTest : public SuccessorTest {
 protected:
  void KillAtEveryPoint(const std::string& name, const std::vector<int>& victims) {
    for (const char* point : kYieldCrashPoints) {
      SCOPED_TRACE(absl::StrCat(name, ", ranks ", absl::StrJoin(victims, " and "), ", ", point));
      std::vector<Fate> fates(kSuccessorRanks);
      for (const int victim : victims) fates[static_cast<size_t>(victim)] = {"kill", point};
      const std::vector<int> ends = Start(name, false, fates);
      EXPECT_TRUE(std::ranges::any_of(victims, [&](int victim) {
        return WasKilled(ends[static_cast<size_t>(victim)]);
      })) << Words();
      EXPECT_EQ(MustFinish(name), kEvictedStep + 1);
    }
  }
};

TEST_F(SuccessorEvictedTest, RanksKilledAtEveryPointOfAnEviction_GoOnAfterTheSameStep) {
  KillAtEveryPoint("evicted device", {0});
  KillAtEveryPoint("evicted moved", {0, 1});
  if (!LongTests()) return;
  KillAtEveryPoint("evicted device", {1});
  KillAtEveryPoint("evicted device", {0, 1});
  KillAtEveryPoint("evicted moved", {0});
  KillAtEveryPoint("evicted moved", {1});
}

// Each replacement finds what the one before it has brought back to the device, and the rest.
TEST_F(SuccessorEvictedTest, SuccessorsKilledAtEveryPoint_HaveSuccessors) {
  for (const std::string name : {"evicted device", "evicted moved"}) {
    const Fate fate = {"kill", "arena given back"};
    Start(name, false, {fate, fate});
    for (const std::string point : kReturnCrashPoints) {
      SCOPED_TRACE(absl::StrCat(name, ", ", point));
      const bool has_home = name == "evicted moved";
      if (point == (has_home ? "chunk brought back" : "spare brought")) continue;
      const Fate next = {"kill", point};
      EXPECT_THAT(Start(name, true, {next, next}), ::testing::Contains(::testing::Truly(WasKilled)))
          << Words();
    }
    EXPECT_EQ(MustFinish(name), kEvictedStep + 1);
  }
}

TEST_F(SuccessorTest, WithoutACommittedStep_AllBeginAnew) {
  const std::vector<int> ends =
      Start("tight", false, {{"kill", "step agreed", 1}, {"hold", "step agreed", 1}});
  ASSERT_TRUE(WasKilled(ends[0])) << Words();
  EXPECT_EQ(MustFinish("tight"), 0);
}

// One rank has no state to resume from, so the other rank gives up its own.
TEST_F(SuccessorTest, WhereOneRankFindsNothing_AllBeginAnew) {
  for (const std::string name : {"tight", "moved", "device", "apart"}) {
    SCOPED_TRACE(name);
    Start(name, false, {{"kill", "granule flipped", 43}, {}});
    EndKept(1);
    EXPECT_EQ(MustFinish(name), 0);
  }
}

// The same point of the run repeats, while the other threads are at different points.
TEST_F(SuccessorTest, StateThatMovedToTheDevice_IsBroughtHomeEachTime) {
  const int times = LongTests() ? 8 : 3;
  for (int i = 0; i < times; ++i) {
    SCOPED_TRACE(i);
    Start("moved", false, {{"kill", "granule flipped", 43 + i}, {}});
    EXPECT_GE(MustFinish("moved"), 1);
  }
}

}  // namespace
}  // namespace geminid::zero
