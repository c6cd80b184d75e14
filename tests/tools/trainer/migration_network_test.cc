// The pause of a run that moves to another host over a link of 1 Gbit/s.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "tests/base/long_tests.h"
#include "tests/base/network_hosts.h"
#include "tests/tools/trainer/moved_run.h"

namespace geminid::trainer {
namespace {

using base::NetworkHosts;

constexpr double kLinkBytesPerSecond = 1e9 / 8;
constexpr absl::Duration kShortJob = absl::Seconds(2);

// A remote shell whose bytes cross the link. RELAY SHELL HOST LINE runs the line on the host by
// SHELL. A connection from here is its input and output.
constexpr char kRelay[] = R"(
import os, socket, subprocess, sys, threading
if sys.argv[1] == "serve":
    host, line = sys.argv[2:4]
    listener = socket.create_server((host, 0))
    print(listener.getsockname()[1], flush=True)
    connection = listener.accept()[0]
    listener.close()
    os.dup2(connection.fileno(), 0)
    os.dup2(connection.fileno(), 1)
    os.execv("/bin/sh", ["sh", "-c", line])
shell, host, line = sys.argv[1:4]
def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"
words = " ".join(quoted(word) for word in [sys.executable, __file__, "serve", host, line])
server = subprocess.Popen([shell, host, "exec " + words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE)
connection = socket.create_connection((host, int(server.stdout.readline())))
def there():
    while data := os.read(0, 1 << 18):
        connection.sendall(data)
    connection.shutdown(socket.SHUT_WR)
threading.Thread(target=there, daemon=True).start()
while data := connection.recv(1 << 18):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]
sys.exit(server.wait())
)";

class MigrationOverALink : public MovedRun {
 protected:
  void SetUp() override {
    auto network = NetworkHosts::Make(2);
    if (!network.ok() && NetworkHosts::MayBeSkipped()) GTEST_SKIP() << network.status();
    ASSERT_TRUE(network.ok()) << network.status();
    network_ = *std::move(network);
    for (int host = 0; host < 2; ++host) ASSERT_TRUE(network_->Slow(host, "1gbit").ok());
    AddHost("home", "512MiB", "2GiB");
    AddHost(there_, "512MiB", "2GiB");
  }

  std::string Executable(const std::string& name, const std::string& text) const {
    const std::string path = folder_.Write(name, text);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }

  // Starts a run on the first host.
  std::unique_ptr<TrainerProcess> StartThere(const Words& more) {
    const std::string relay = Executable("relay.py", kRelay);
    const std::string shell = Executable(
        "shell", absl::StrCat("#!/bin/sh\nexec python3 ", relay, " ", network_->remote_shell(),
                              " $1 \"export GEMINID_SOCKET=", SocketOf(there_), "; $2\"\n"));
    const std::string begin = Executable(
        "begin",
        absl::StrCat("#!/bin/sh\nline=exec\nfor word in \"$@\"; do line=\"$line '$word'\"; "
                     "done\nexec ",
                     network_->remote_shell(), " ", NetworkHosts::NameOf(0), " \"$line\"\n"));
    return Start(shell, more, {begin});
  }

  // Reads the pause from the request's message: "..., 930ms after that step".
  static absl::Duration PauseOf(const std::string& message) {
    const size_t at = message.rfind(", ");
    absl::Duration pause = absl::InfiniteDuration();
    if (at == std::string::npos) return pause;
    const std::string text = message.substr(at + 2);
    absl::ParseDuration(text.substr(0, text.find(' ')), &pause);
    return pause;
  }

  static uint64_t StateBytes(const std::string& said) {
    const size_t at = said.rfind("carries ");
    return at == std::string::npos ? 0 : static_cast<uint64_t>(std::atof(said.c_str() + at + 8));
  }

  const std::string there_ = NetworkHosts::NameOf(1);
  std::unique_ptr<NetworkHosts> network_;
};

TEST_F(MigrationOverALink, OfAShortJob_PausesForTwoSecondsAtMost) {
  const auto trainer = StartThere({});
  const v1::ScaleRequest there = Move("home", there_);
  ASSERT_EQ(there.state(), "done") << there.message() << trainer->output();
  const absl::Duration pause = PauseOf(there.message());
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(pause)));
  EXPECT_LE(pause, kShortJob) << there.message();
  ExpectBitsOfARunThatStays(trainer.get());
}

// 25 million parameters have 12 bytes of state each. The processors' work also counts against the
// bound, so the machine must be idle.
TEST_F(MigrationOverALink, OfALargeState_PausesForTwiceItsTimeOnTheLinkAtMost) {
  if (!LongTests()) GTEST_SKIP() << "needs a quiet machine: tools/test --long";
  const auto trainer = StartThere({"--layers", "8", "--hidden", "512", "--heads", "8", "--context",
                                   "16", "--batch", "2", "--device-memory", "128MiB"});
  ASSERT_TRUE(WaitForStep(*trainer, 2)) << trainer->output();
  const v1::ScaleRequest there = Move("home", there_);
  ASSERT_EQ(there.state(), "done") << there.message() << trainer->output();
  ASSERT_TRUE(trainer->WaitFor("carries ", "goes on at ")) << trainer->output();
  const absl::Duration pause = PauseOf(there.message());
  const uint64_t mebibytes = StateBytes(trainer->output());
  const absl::Duration on_link =
      absl::Seconds(static_cast<double>(mebibytes << 20) / kLinkBytesPerSecond);
  RecordProperty("milliseconds", static_cast<int>(absl::ToInt64Milliseconds(pause)));
  RecordProperty("link_milliseconds", static_cast<int>(absl::ToInt64Milliseconds(on_link)));
  EXPECT_GE(mebibytes, 200u) << trainer->output();
  EXPECT_GE(pause, on_link) << "the state did not cross the link";
  EXPECT_LE(pause, 2 * on_link) << there.message();
  trainer->Signal(SIGINT);
  trainer->Wait();
}

}  // namespace
}  // namespace geminid::trainer
