// Subcommands that wait, repeat and write files, with a real daemon in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/escaping.h"
#include "base/exit_code.h"
#include "daemon/service/sessions/token.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/tools/geminictl/in_process.h"

namespace geminid::ctl {
namespace {

using base::At;
using base::JsonValue;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string TextOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_F(Geminictl, WaitDaemon_ReturnsForOneThatServes) {
  EXPECT_EQ(RunHere({"wait", "daemon"}).code, base::kExitOk);
}

TEST_F(Geminictl, WaitDaemon_OfADrainedOneRunsOutOfTime) {
  ASSERT_EQ(RunHere({"drain"}).code, base::kExitOk);
  const Outcome outcome = RunHere({"wait", "daemon", "--at-most", "0.1"});
  EXPECT_EQ(outcome.code, base::kExitDeadline);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("drain --undo"), HasSubstr("--at-most")));
}

TEST_F(Geminictl, WaitDaemon_ThatIsNotThereRunsOutOfTime) {
  env_.Stop();
  const Outcome outcome = RunHere({"wait", "daemon", "--at-most", "0.1"});
  EXPECT_EQ(outcome.code, base::kExitDeadline);
  EXPECT_THAT(outcome.err, HasSubstr("there is no socket"));
}

TEST_F(Geminictl, WaitJob_SeesItComeAndGo) {
  auto session = Attach("demo");
  EXPECT_EQ(RunHere({"wait", "job", "demo", "--for", "running"}).code, base::kExitOk);
  const Outcome still = RunHere({"wait", "job", "demo", "--for", "gone", "--at-most", "0.1"});
  EXPECT_EQ(still.code, base::kExitDeadline);
  EXPECT_THAT(still.err, HasSubstr("it is running"));
  session.reset();
  EXPECT_EQ(RunHere({"wait", "job", "demo", "--for", "gone"}).code, base::kExitOk);
}

TEST_F(Geminictl, Watch_RepeatsAsOftenAsItIsTold) {
  const Outcome outcome = RunHere({"ls", "sessions", "--watch", "0.1", "--times", "3"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_EQ(Lines(outcome.out), 3u) << outcome.out;  // three headers
}

TEST_F(Geminictl, Watch_OfADaemonThatIsNotThereFailsAtOnce) {
  env_.Stop();
  EXPECT_EQ(RunHere({"status", "--watch", "0.1", "--times", "3"}).code, base::kExitUnavailable);
}

TEST_F(Geminictl, TraceExport_WritesAStepForPerfettoAndAPicture) {
  const auto session = Attach("demo");
  const auto chunks = session->Allocate({{"layer0", ChunkKind::kGeneric, kMiB}});
  ASSERT_TRUE(chunks.ok());
  const std::string json = env_.socket() + ".step.json", svg = env_.socket() + ".step.svg",
                    saved = env_.socket() + ".trace.json";
  EXPECT_EQ(RunHere({"trace", "export", "--svg", svg}).code, base::kExitNotFound);  // no plan yet
  MakePlanFor(session.get(), (*chunks)[0].id);
  const Outcome outcome = RunHere({"trace", "export", "--perfetto", json, "--svg", svg});
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("computation"));
  const std::string command = "python3 -c \"import json; e = json.load(open('" + json +
                              "'))['traceEvents']; "
                              "s = [x for x in e if x['ph'] == 'X']; "
                              "assert {'moment 0', 'moment 1'} <= {x['name'] for x in s}, s; "
                              "assert {x['pid'] for x in e} == {0}; "
                              "c = sum(x['dur'] for x in s if x['tid'] == 0); "
                              "assert abs(c - 3000) < 1, c; "
                              "assert any(x['ph'] == 'C' for x in e)\"";
  EXPECT_EQ(std::system(command.c_str()), 0) << TextOf(json);
  EXPECT_THAT(TextOf(svg), AllOf(HasSubstr("moment 1, 2.000 ms"),
                                 HasSubstr("device memory: 4.0 MiB"), HasSubstr("rank 0 of 1")));
  ASSERT_EQ(RunHere({"trace", "save", "-o", saved}).code, base::kExitOk);
  std::filesystem::remove(svg);
  EXPECT_EQ(RunWith({"trace", "export", "--file", saved, "--svg", svg}).code, base::kExitOk);
  EXPECT_THAT(TextOf(svg), HasSubstr("moment 1, 2.000 ms"));
}

// The files of a bundle with their contents, unpacked by python3.
std::string Unpacked(const std::string& path) {
  const std::string command = "python3 -c \"import sys, tarfile; t = tarfile.open('" + path +
                              "'); [print(m.name, t.extractfile(m).read().decode()) for m in t]\"";
  std::string text;
  FILE* const pipe = ::popen(command.c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  EXPECT_EQ(::pclose(pipe), 0);
  return text;
}

TEST_F(Geminictl, Bundle_HasWhatTheDaemonSaysAndNoToken) {
  const auto session = AttachWithChunks();
  auto raw = geminid::testing::RawClient::Attach(env_.socket());
  ASSERT_TRUE(raw.ok()) << raw.status();
  const std::string file = env_.socket() + ".tar.gz", log = env_.socket() + ".log";
  std::ofstream(log) << "what the daemon said\n";
  const Outcome outcome = RunWith({"bundle", "-o", file, "--log", log},
                                  {{"GEMINID_SOCKET", env_.socket()}, {"PASSWORD", "hunter2"}});
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  const std::string text = Unpacked(file);
  for (const char* member :
       {"version.json", "doctor.json", "status.json", "sessions.json", "jobs.json", "pools.json",
        "config.json", "log.txt", "errors.txt", "http/metrics.txt", "machine/proc/meminfo.txt"}) {
    EXPECT_THAT(text, HasSubstr(std::string("geminid-bundle/") + member));
  }
  EXPECT_THAT(text, AllOf(HasSubstr("\"job\": \"demo\""), HasSubstr("what the daemon said"),
                          HasSubstr("MemTotal"), Not(HasSubstr("hunter2"))));
  service::Token token;
  std::memcpy(token.data(), (*raw)->welcome().token, token.size());
  EXPECT_THAT(text, Not(HasSubstr(absl::BytesToHexString(
                        {reinterpret_cast<const char*>(token.data()), token.size()}))));
}

TEST_F(Geminictl, Bundle_OfADeadDaemonHasTheMachineAndSaysWhatIsMissing) {
  env_.Stop();
  const std::string file = env_.socket() + ".tar.gz";
  const Outcome outcome = RunHere({"bundle", "-o", file});
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("status.json: no daemon"));
  EXPECT_THAT(Unpacked(file), AllOf(HasSubstr("doctor.json"), HasSubstr("status.json: no daemon"),
                                    Not(HasSubstr("geminid-bundle/status.json"))));
}

TEST(GeminictlAlone, Bundle_IntoAFileOfAnotherKindIsUsage) {
  EXPECT_EQ(RunWith({"bundle", "-o", "x.zip"}).code, base::kExitUsage);
  EXPECT_EQ(RunWith({"bundle", "--log", "/nowhere/log"}).code, base::kExitNotFound);
}

}  // namespace
}  // namespace geminid::ctl
