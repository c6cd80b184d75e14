// Every subcommand with a real daemon in this process, and a client that holds chunks.
#include "tools/geminictl/program/run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <map>
#include <set>
#include <sstream>

#include "base/exit_code.h"
#include "base/unique_fd.h"
#include "client/src/job_scaling.h"
#include "daemon/service/entry/version.h"
#include "geminid/session.h"
#include "tests/base/json_values.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/geminictl/in_process.h"

namespace geminid::ctl {
namespace {

using base::At;
using base::JsonValue;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(Geminictl, Status_ShowsTheLedgerAndItsHolders) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"status"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("serving"), HasSubstr(env_.socket()), HasSubstr("sessions  1"),
                    HasSubstr("The ledger adds up"), HasSubstr("exp_avg"), HasSubstr("demo"),
                    HasSubstr("1.0MiB"), HasSubstr("RAM"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(Geminictl, StatusJson_HasRawBytesThatAddUp) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"status", "--json"});
  EXPECT_EQ(outcome.code, base::kExitOk);
  const JsonValue value = Parse(outcome);
  EXPECT_EQ(At(value, "version").text, service::kVersion);
  const JsonValue& tiers = At(At(value, "ledger"), "tiers");
  ASSERT_EQ(tiers.items.size(), 3u);
  for (const JsonValue& tier : tiers.items) {
    const auto bytes = [&](const char* key) { return std::stoull(At(tier, key).text); };
    EXPECT_EQ(bytes("in_use_bytes") + bytes("reserved_bytes") + bytes("free_bytes"),
              bytes("capacity_bytes"));
    if (At(tier, "tier").text == "host") {
      EXPECT_EQ(bytes("in_use_bytes"), 3 * kMiB);
    }
    if (At(tier, "tier").text == "device") {
      EXPECT_EQ(bytes("in_use_bytes"), kMiB);
    }
  }
}

TEST_F(Geminictl, ListSessions_HasOneLineEach) {
  const auto session = AttachWithChunks();
  const auto other = Attach("other");
  const Outcome outcome = RunHere({"ls", "sessions"});
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_EQ(Lines(outcome.out), 3u);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("SESSION"), HasSubstr("demo"), HasSubstr("other"),
                                 HasSubstr("attached")));
  const JsonValue value = Parse(RunHere({"ls", "sessions", "--json"}));
  ASSERT_EQ(At(value, "sessions").items.size(), 2u);
  EXPECT_EQ(At(At(value, "sessions").items[0], "host_bytes").text, std::to_string(3 * kMiB));
}

TEST_F(Geminictl, ListJobs_ShowsWhoHoldsWhat) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"ls", "jobs"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_EQ(Lines(outcome.out), 2u);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("demo"), HasSubstr("1/1"), HasSubstr("running"),
                                 HasSubstr("4.0MiB")));
  const JsonValue value = Parse(RunHere({"ls", "jobs", "--json"}));
  ASSERT_EQ(At(value, "jobs").items.size(), 1u);
  EXPECT_EQ(At(At(value, "jobs").items[0], "host_bytes").text, std::to_string(3 * kMiB));
}

TEST_F(Geminictl, Drain_WaitsUntilNoJobIsLeft) {
  auto session = AttachWithChunks();
  const Outcome waiting = RunHere({"drain", "--wait-at-most", "0.1"});
  EXPECT_EQ(waiting.code, base::kExitDeadline);
  EXPECT_THAT(waiting.err, AllOf(HasSubstr("waits for 1 job: demo"), HasSubstr("geminictl end")));
  EXPECT_THAT(RunHere({"status"}).out, HasSubstr("is drained"));
  EXPECT_THAT(RunHere({"ls", "jobs"}).err, HasSubstr("drain --undo"));
  session.reset();
  const Outcome empty = RunHere({"drain", "--wait"});
  EXPECT_EQ(empty.code, base::kExitOk) << empty.err;
  EXPECT_THAT(empty.out, HasSubstr("It is empty, 0 wait"));
  const Outcome undone = RunHere({"drain", "--undo"});
  EXPECT_EQ(undone.code, base::kExitOk);
  EXPECT_THAT(undone.out, HasSubstr("admits new jobs"));
  EXPECT_NE(Attach("next"), nullptr);
}

TEST_F(Geminictl, End_NeedsAYesAndFreesTheJobsMemory) {
  const auto session = AttachWithChunks();
  const Outcome unsure = RunHere({"end", "demo"});
  EXPECT_EQ(unsure.code, base::kExitUsage);
  EXPECT_THAT(unsure.err, HasSubstr("--yes"));
  const Outcome ended = RunHere({"end", "demo", "--yes"});
  EXPECT_EQ(ended.code, base::kExitOk) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("1 session, 7.0 MiB freed"));
  EXPECT_EQ(Lines(RunHere({"ls", "jobs"}).out), 1u);
  const Outcome again = RunHere({"end", "demo", "--yes"});
  EXPECT_EQ(again.code, base::kExitNotFound);
}

// Collects the output. Calls a function at each flush, which shows what geminictl waits for.
class Heard final : public std::stringbuf {
 public:
  explicit Heard(std::function<void(const std::string& so_far)> on_flush)
      : on_flush_(std::move(on_flush)) {}
  int sync() override {
    on_flush_(str());
    return 0;
  }

 private:
  const std::function<void(const std::string&)> on_flush_;
};

// The earlier ranks have handed over and ended. The next ranks come while geminictl waits.
TEST_F(Geminictl, End_OfAJobBetweenTwoGroupsOfRanks_EndsTheNextOne) {
  auto session = Attach("demo");
  JobScaling rank(env_.socket(), absl::Seconds(60));
  const auto offer = [&](const JobScaling::Outcome& outcome) {
    return rank.Make({.session = session->id(), .job = "demo", .outcome = outcome});
  };
  ASSERT_TRUE(offer({}).ok());
  EXPECT_EQ(RunHere({"scale", "demo", "2", "--at-most", "0.1"}).code, base::kExitDeadline);
  const auto asked = offer({});
  ASSERT_TRUE(asked.ok() && asked->number != 0);
  ASSERT_TRUE(offer({asked->number, "taken", ""}).ok());
  session.reset();
  EXPECT_EQ(RunHere({"wait", "job", "demo", "--for", "gone"}).code, base::kExitOk);
  Heard heard([&](const std::string& so_far) {
    if (session == nullptr && so_far.find("next ranks of job demo") != std::string::npos) {
      session = Attach("demo");
    } else if (so_far.find("its ranks to end") != std::string::npos) {
      session.reset();
    }
  });
  std::ostream err(&heard);
  std::ostringstream out;
  Environment environment;
  environment.out = &out;
  environment.err = &err;
  environment.variables = [](const std::string&) { return std::nullopt; };
  const int code = RunGeminictl({"end", "demo", "--yes", "--socket", env_.socket()}, environment);
  EXPECT_EQ(code, base::kExitOk) << heard.str();
  EXPECT_THAT(out.str(), HasSubstr("Ended job demo: 1 session,"));
}

TEST_F(Geminictl, Evict_OfAJobThatGivesNothingBack_IsExitCodeTen) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"evict", "demo"});
  EXPECT_EQ(outcome.code, base::kExitPrecondition);
  EXPECT_THAT(outcome.err, HasSubstr("end it instead"));
}

TEST_F(Geminictl, Scale_OfAJobThatCannot_SaysWhy) {
  const auto session = AttachWithChunks();
  const Outcome other = RunHere({"scale", "demo", "2"});
  EXPECT_EQ(other.code, base::kExitPrecondition);
  EXPECT_THAT(other.err, HasSubstr("only ranks in training that geminid-train has started"));
  EXPECT_EQ(RunHere({"scale", "nobody", "2"}).code, base::kExitNotFound);
}

TEST_F(Geminictl, Scale_WaitsForWhatTheRanksSay) {
  const auto session = AttachWithChunks();
  JobScaling rank(env_.socket(), absl::Seconds(60));
  const auto offer = [&](const JobScaling::Outcome& outcome) {
    return rank.Make({.session = session->id(), .job = "demo", .outcome = outcome});
  };
  const auto answer = [&](const std::string& state, const std::string& message) {
    return std::async(std::launch::async, [=, &offer] {
      absl::StatusOr<JobScaling::RankChange> asked = offer({});
      while (asked.ok() && asked->number == 0) asked = offer({});
      return asked.ok() ? offer({asked->number, state, message}).status() : asked.status();
    });
  };
  ASSERT_TRUE(offer({}).ok());
  auto good = answer("done", "goes on as 2 ranks after step 7");
  const Outcome done = RunHere({"scale", "demo", "2"});
  EXPECT_TRUE(good.get().ok());
  EXPECT_EQ(done.code, base::kExitOk) << done.err;
  EXPECT_EQ(done.out, "Job demo goes on as 2 ranks after step 7.\n");
  auto bad = answer("refused", "there is no room");
  const Outcome refused = RunHere({"scale", "demo", "3"});
  EXPECT_TRUE(bad.get().ok());
  EXPECT_EQ(refused.code, base::kExitPrecondition);
  EXPECT_THAT(refused.err, HasSubstr("job demo was not scaled to 3 ranks: there is no room"));
  const Outcome late = RunHere({"scale", "demo", "3", "--at-most", "0.1"});
  EXPECT_EQ(late.code, base::kExitDeadline);
  EXPECT_THAT(late.err, HasSubstr("the request for 3 ranks remains"));
}

// The process that started the job's rank, which is this one, still runs.
TEST_F(Geminictl, Scale_BetweenADeathAndTheRestart_WaitsForTheRanks) {
  auto session = AttachWithChunks();
  JobScaling rank(env_.socket(), absl::Seconds(60));
  ASSERT_TRUE(rank.Make({.session = session->id(), .job = "demo"}).ok());
  session.reset();
  const Outcome late = RunHere({"scale", "demo", "3", "--at-most", "0.1"});
  EXPECT_EQ(late.code, base::kExitDeadline);
  EXPECT_THAT(late.err, HasSubstr("geminictl: waits for the ranks of job demo to start again\n"));
  EXPECT_THAT(late.err, HasSubstr("job demo of "));
  EXPECT_THAT(late.err, HasSubstr("has no ranks now"));
}

TEST_F(Geminictl, Migrate_WaitsForWhatIsSaidOfTheMove) {
  const auto session = AttachWithChunks();
  JobScaling rank(env_.socket(), absl::Seconds(60));
  const auto offer = [&](const JobScaling::Outcome& outcome) {
    return rank.Make({.session = session->id(), .job = "demo", .outcome = outcome});
  };
  // Ranks take the request, and the launcher reports its outcome.
  const auto move = [&](const std::string& state, const std::string& message) {
    return std::async(std::launch::async, [=, &offer, &rank]() -> absl::Status {
      absl::StatusOr<JobScaling::RankChange> asked = offer({});
      while (asked.ok() && asked->number == 0) asked = offer({});
      if (!asked.ok()) return asked.status();
      EXPECT_EQ(asked->host, "beta");
      const absl::Status taken = offer({asked->number, "taken", ""}).status();
      return taken.ok() ? rank.Tell("demo", {asked->number, state, message}) : taken;
    });
  };
  ASSERT_TRUE(offer({}).ok());
  auto good = move("done", "goes on at beta as 1 rank after step 7, 800ms after that step");
  const Outcome done = RunHere({"migrate", "demo", "beta"});
  EXPECT_TRUE(good.get().ok());
  EXPECT_EQ(done.code, base::kExitOk) << done.err;
  EXPECT_EQ(done.out, "Job demo goes on at beta as 1 rank after step 7, 800ms after that step.\n");
  auto bad = move("refused", "beta: it is full");
  const Outcome refused = RunHere({"migrate", "demo", "beta", "--json"});
  EXPECT_TRUE(bad.get().ok());
  EXPECT_EQ(refused.code, base::kExitPrecondition);
  EXPECT_THAT(refused.err, HasSubstr("job demo was not moved to beta: beta: it is full"));
  const Outcome late = RunHere({"migrate", "demo", "beta", "--at-most", "0.1"});
  EXPECT_EQ(late.code, base::kExitDeadline);
  EXPECT_THAT(late.err, HasSubstr("is not at beta yet; the request remains"));
  EXPECT_EQ(RunHere({"migrate", "demo", ""}).code, base::kExitUsage);
}

TEST_F(Geminictl, ListChunks_ShowsStatesAndHidesControlCharacters) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"ls", "chunks"});
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_EQ(Lines(outcome.out), 4u);
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("layer1"), HasSubstr("exp_avg"), HasSubstr("on host, on device"),
                    HasSubstr("on host  "), HasSubstr("evil?[2J"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(outcome.err, IsEmpty());
}

TEST_F(Geminictl, ListChunks_SaysWhatTheLimitHides) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"ls", "chunks", "--limit", "2"});
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_EQ(Lines(outcome.out), 3u);
  EXPECT_THAT(outcome.err, HasSubstr("2 of 3"));
  const JsonValue value = Parse(RunHere({"ls", "chunks", "--limit", "2", "--json"}));
  EXPECT_EQ(At(value, "chunks").items.size(), 2u);
  EXPECT_EQ(At(value, "total").text, "3");
}

TEST_F(Geminictl, ListChunks_OfOneSession) {
  const auto session = AttachWithChunks();
  const auto other = Attach("other");
  const Outcome empty = RunHere({"ls", "chunks", "--session", std::to_string(other->id())});
  EXPECT_EQ(empty.code, base::kExitOk);
  EXPECT_EQ(Lines(empty.out), 1u);
  const Outcome missing = RunHere({"ls", "chunks", "--session", "4711"});
  EXPECT_EQ(missing.code, base::kExitNotFound);
  EXPECT_THAT(missing.out, IsEmpty());
  EXPECT_THAT(missing.err, HasSubstr("4711"));
}

TEST_F(Geminictl, ListPools_ShowsPoolAndArena) {
  const auto session = AttachWithChunks();
  const Outcome outcome = RunHere({"ls", "pools"});
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_EQ(Lines(outcome.out), 3u);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("host"), HasSubstr("device"), HasSubstr("4.0MiB")));
  EXPECT_EQ(At(Parse(RunHere({"ls", "pools", "--json"})), "pools").items.size(), 2u);
}

TEST_F(Geminictl, Explain_SaysWhereAndWhatWouldEvictIt) {
  const auto session = AttachWithChunks();
  const std::string first = std::to_string(session->id()) + "/0";
  for (const std::string& name : {first, std::string("0")}) {
    const Outcome outcome = RunHere({"explain", name});
    EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
    EXPECT_THAT(outcome.out, AllOf(HasSubstr("layer0"), HasSubstr("resident on device 0"),
                                   HasSubstr("evicted")));
  }
  const JsonValue value = Parse(RunHere({"--json", "explain", first}));
  EXPECT_EQ(At(At(value, "chunk"), "bytes").text, std::to_string(kMiB));
  EXPECT_GE(At(value, "lines").items.size(), 3u);
}

TEST_F(Geminictl, Explain_OfWhatIsNotThere_IsNotFound) {
  EXPECT_EQ(RunHere({"explain", "0"}).code, base::kExitNotFound);  // there is no session
  const auto session = AttachWithChunks();
  const Outcome chunk = RunHere({"explain", "4711"});
  EXPECT_EQ(chunk.code, base::kExitNotFound);
  EXPECT_THAT(chunk.err, AllOf(HasSubstr("4711"), HasSubstr("ls chunks")));
  EXPECT_EQ(RunHere({"explain", "4711/0"}).code, base::kExitNotFound);
}

TEST_F(Geminictl, Explain_AmongSeveralSessions_AsksForOne) {
  const auto session = AttachWithChunks();
  const auto other = Attach("other");
  const Outcome outcome = RunHere({"explain", "0"});
  EXPECT_EQ(outcome.code, base::kExitUsage);
  EXPECT_THAT(outcome.err, HasSubstr(std::to_string(session->id()) + "/0"));
}

TEST_F(Geminictl, ConfigShow_HasValuesAndOrigins) {
  const Outcome plain = RunHere({"config", "show"});
  EXPECT_EQ(plain.code, base::kExitOk);
  EXPECT_THAT(plain.out, AllOf(HasSubstr("host_memory"), HasSubstr("1GiB"),
                               Not(HasSubstr("flag --host-memory"))));
  EXPECT_THAT(RunHere({"config", "show", "--origin"}).out,
              AllOf(HasSubstr("flag --host-memory"), HasSubstr("built-in")));
  const JsonValue value = Parse(RunHere({"config", "show", "--json"}));
  EXPECT_EQ(At(At(value, "effective"), "socket").text, env_.socket());
  EXPECT_FALSE(At(value, "origins").items.empty());
}

TEST_F(Geminictl, TopOnce_DrawsBarsAndRanks) {
  const auto session = AttachWithChunks();
  session->AddStall(StallCause::kCopy, absl::Seconds(1));
  const Outcome outcome = RunHere({"top", "--once"});
  EXPECT_EQ(outcome.code, base::kExitOk);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("#"), HasSubstr("arena of"), HasSubstr("copy"),
                                 HasSubstr("in use"), Not(HasSubstr("\x1b"))));
  const JsonValue value = Parse(RunHere({"top", "--json"}));
  EXPECT_EQ(At(value, "tiers").items.size(), 3u);
  EXPECT_EQ(At(value, "sessions").items.size(), 1u);
}

TEST_F(Geminictl, Doctor_ChecksTheDaemonToo) {
  const JsonValue value = Parse(RunHere({"doctor", "--json"}));
  std::map<std::string, std::string> verdicts;
  for (const JsonValue& check : At(value, "checks").items) {
    verdicts[At(check, "id").text] = At(check, "verdict").text;
  }
  EXPECT_EQ(verdicts["socket"], "pass");
  EXPECT_EQ(verdicts["attach_socket"], "pass");
  EXPECT_EQ(verdicts["daemon_version"], "pass");
  EXPECT_EQ(verdicts["daemon_ledger"], "pass");
}

TEST_F(Geminictl, SocketFlag_BeatsTheEnvironment) {
  EXPECT_EQ(RunWith({"status", "--socket", env_.socket()}, {{"GEMINID_SOCKET", "/nowhere"}}).code,
            base::kExitOk);
}

TEST(GeminictlAlone, Doctor_HasEveryCheckAndNeedsNoDaemon) {
  const base::TemporaryFolder folder;
  const Outcome outcome = RunWith({"doctor", "--json", "--socket", folder.path() + "/s"});
  const JsonValue value = Parse(outcome);
  std::vector<std::string> ids;
  for (const JsonValue& check : At(value, "checks").items) {
    ids.push_back(At(check, "id").text);
    EXPECT_NE(At(check, "found").text, "") << ids.back();
    const std::string verdict = At(check, "verdict").text;
    EXPECT_EQ(At(check, "fix").text.empty(), verdict == "pass" || verdict == "skip") << ids.back();
  }
  EXPECT_THAT(ids,
              ::testing::ElementsAre("memfd_seals", "memfd_noexec_seal", "populate_write",
                                     "peer_pidfd", "io_uring", "memlock_limit", "open_files_limit",
                                     "memory", "cgroup_memory_limit", "numa_nodes", "huge_pages",
                                     "dev_shm", "cpu_features", "nvidia_driver", "temporary_space",
                                     "socket", "attach_socket", "daemon_version", "daemon_ledger",
                                     "daemon_devices", "daemon_capacity", "daemon_survival"));
  EXPECT_EQ(outcome.code, At(value, "fail").text == "0" ? base::kExitOk : base::kExitUnhealthy);
}

TEST(GeminictlAlone, Doctor_FailureIsUnhealthy) {
  const base::TemporaryFolder folder;
  std::ofstream(folder.path() + "/s") << "no socket";
  const Outcome outcome = RunWith({"doctor", "--socket", folder.path() + "/s"});
  EXPECT_EQ(outcome.code, base::kExitUnhealthy);
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("is not a socket"), HasSubstr("fail  socket")));
}

TEST(GeminictlAlone, NoDaemon_IsUnavailableWithAdvice) {
  const base::TemporaryFolder folder;
  const std::string socket = folder.path() + "/s";
  for (const std::vector<std::string>& command : {std::vector<std::string>{"status"},
                                                  {"top"},
                                                  {"ls", "sessions"},
                                                  {"ls", "chunks"},
                                                  {"ls", "pools"},
                                                  {"explain", "1/1"},
                                                  {"config", "show"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--socket", socket});
    const Outcome outcome = RunWith(arguments);
    EXPECT_EQ(outcome.code, base::kExitUnavailable) << command[0];
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(socket), HasSubstr("--socket"), HasSubstr("doctor")));
  }
}

// Makes a stream socket at `path`, which listens if `listen`.
base::UniqueFd Bind(const std::string& path, bool listen) {
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  if (listen) {
    EXPECT_EQ(::listen(fd.get(), 8), 0);
  }
  return fd;
}

TEST(GeminictlAlone, SocketOfADeadDaemon_IsUnavailable) {
  const base::TemporaryFolder folder;
  const base::UniqueFd dead = Bind(folder.path() + "/s", false);
  const Outcome outcome = RunWith({"status", "--socket", folder.path() + "/s"});
  EXPECT_EQ(outcome.code, base::kExitUnavailable);
  EXPECT_THAT(outcome.err, HasSubstr("has ended"));
}

TEST(GeminictlAlone, DaemonThatDoesNotAnswer_IsADeadline) {
  const base::TemporaryFolder folder;
  const base::UniqueFd silent = Bind(folder.path() + "/s", true);
  const Outcome outcome = RunWith({"status", "--timeout", "0.2", "--socket", folder.path() + "/s"});
  EXPECT_EQ(outcome.code, base::kExitDeadline);
  EXPECT_THAT(outcome.err, HasSubstr("--timeout"));
}

// Gives this thread the file permissions of an unprivileged user until the object's end.
class AsNobody {
 public:
  AsNobody() : before_(::setfsuid(kNobody)) {}
  ~AsNobody() { ::setfsuid(static_cast<uid_t>(before_)); }

 private:
  static constexpr uid_t kNobody = 65534;
  const int before_;
};

TEST_F(Geminictl, SocketOfOthers_IsAPermissionAndTheDoctorSaysSo) {
  // Root needs AsNobody, and other users need the chmod.
  ASSERT_EQ(::chmod(env_.socket().c_str(), 0), 0);
  const AsNobody nobody;
  const Outcome status = RunHere({"status"});
  EXPECT_EQ(status.code, base::kExitPermission);
  EXPECT_THAT(status.out, IsEmpty());
  EXPECT_THAT(status.err, AllOf(HasSubstr(env_.socket()), HasSubstr("group")));
  const Outcome doctor = RunHere({"doctor"});
  EXPECT_EQ(doctor.code, base::kExitUnhealthy);
  EXPECT_THAT(doctor.out, HasSubstr("you may not connect"));
}

TEST(GeminictlAlone, WrongUse_IsUsage) {
  const Outcome outcome = RunWith({"frobnicate"});
  EXPECT_EQ(outcome.code, base::kExitUsage);
  EXPECT_THAT(outcome.out, IsEmpty());
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("frobnicate"), HasSubstr("--help")));
  EXPECT_EQ(RunWith({"explain", "first"}).code, base::kExitUsage);
  EXPECT_EQ(RunWith({"status", "--socket", std::string(200, 'x')}).code, base::kExitUsage);
}

TEST(GeminictlAlone, Version_NeedsNoDaemon) {
  EXPECT_THAT(RunWith({"version"}).out, HasSubstr(service::kVersion));
  EXPECT_EQ(RunWith({"--version"}).out, RunWith({"version"}).out);
  EXPECT_EQ(At(Parse(RunWith({"version", "--json"})), "version").text, service::kVersion);
}

TEST_F(Geminictl, TraceSave_WritesWhatTheSessionsPlanWasMadeFrom) {
  const std::string file = env_.socket() + ".trace.json";
  const auto session = Attach("demo");
  const auto chunks = session->Allocate({{"layer0", ChunkKind::kGeneric, kMiB}});
  ASSERT_TRUE(chunks.ok());
  // There is no plan yet.
  EXPECT_EQ(RunHere({"trace", "save", "-o", file}).code, base::kExitNotFound);
  MakePlanFor(session.get(), (*chunks)[0].id);
  const auto other = Attach("other");
  const Outcome several = RunHere({"trace", "save", "-o", file});
  EXPECT_EQ(several.code, base::kExitUsage);
  EXPECT_THAT(several.err, HasSubstr("several"));
  const Outcome saved = RunHere({"trace", "save", "demo/0", "-o", file});
  ASSERT_EQ(saved.code, base::kExitOk) << saved.err;
  const Outcome shown = RunWith({"trace", "show", file});
  EXPECT_EQ(shown.code, base::kExitOk) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("job demo, rank 0 of 1"),
                               HasSubstr("1.0 MiB on the device"), HasSubstr("0.003 s")));
  const Outcome planned = RunWith({"plan", "--trace", file, "--hardware", "h200"});
  EXPECT_EQ(planned.code, base::kExitOk) << planned.err;
  EXPECT_EQ(RunHere({"trace", "save", "demo/7", "-o", file}).code, base::kExitNotFound);
  EXPECT_EQ(RunHere({"trace", "save", "demo/0", "-o", "trace.xls"}).code, base::kExitUsage);
  std::remove(file.c_str());
}

}  // namespace
}  // namespace geminid::ctl
