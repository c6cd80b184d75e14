// hostile DAEMON TRAINER SECONDS: a daemon, a job that trains, and two strangers who try everything
// they can think of, for so long. Prints what it saw; fails when the job's bits differ from those
// of a calm run, the daemon answers too slowly, or does not end when it is told to.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"
#include "tests/hostile/attacks.h"

extern char** environ;

namespace geminid::hostile {
namespace {

using Clock = std::chrono::steady_clock;

// As root each stranger is a user of its own; otherwise all are who runs this.
constexpr uid_t kStrangers[] = {64001, 64002};
constexpr int64_t kMostMilliseconds = 100;  // for an answer, when the processors are not shared
constexpr int64_t kMostMillisecondsShared = 2000;
constexpr auto kMostToEnd = std::chrono::seconds(2);

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

pid_t Spawn(const std::vector<std::string>& arguments, const std::string& output,
            const std::string& socket) {
  std::vector<std::string> words = arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::string variable = "GEMINID_SOCKET=" + socket;
  std::string path = "PATH=/usr/bin";
  char* environment[] = {variable.data(), path.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    posix_spawn_file_actions_addopen(&actions, stream, output.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
  }
  pid_t pid = -1;
  if (posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environment) != 0) pid = -1;
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// The exit code, 128 plus the signal, or -1 if it does not end in time.
int Wait(pid_t pid, Clock::duration patience) {
  const auto end = Clock::now() + patience;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// What a job computes: its losses to the last bit, and its weights.
std::string BitsOf(const std::string& report) {
  const std::string text = ReadFile(report);
  const auto value = [&](const std::string& key, const std::string& end) {
    const size_t begin = text.find("\"" + key + "\"");
    return begin == std::string::npos ? "" : text.substr(begin, text.find(end, begin) - begin);
  };
  const std::string losses = value("loss_hex", "]");
  const std::string weights = value("weights_sha256", ",");
  return losses.empty() || weights.empty() ? "" : losses + weights;
}

class Scene {
 public:
  Scene(std::string daemon, std::string trainer)
      : daemon_program_(std::move(daemon)), trainer_program_(std::move(trainer)) {
    ::chmod(folder_.path().c_str(), 0755);
    std::ofstream text(Path("text"));
    for (int line = 0; line < 2000; ++line) text << "line " << line << " of the text\n";
    // Strangers may have a little; the job, ours, whatever there is.
    std::ofstream(Path("config.json"))
        << "{\"config_version\": 1, \"socket\": \"" << Socket()
        << "\", \"socket_mode\": \"0666\", \"host_memory\": \"2GiB\", \"device_memory\": \"1GiB\", "
        << "\"log_level\": \"info\", \"keep_time\": \"2s\", \"metrics_listen\": \"127.0.0.1:0\", "
        << "\"quotas\": [{\"tenant\": \"uid:" << ::getuid()
        << "\"}, {\"tenant\": \"*\", \"host_memory\": \"256MiB\", \"device_memory\": \"64MiB\"}]}";
  }

  ~Scene() {
    for (const pid_t pid : strangers_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    if (daemon_ > 0) {
      ::kill(daemon_, SIGKILL);
      ::waitpid(daemon_, nullptr, 0);
    }
  }

  bool StartDaemon() {
    daemon_ = Spawn({daemon_program_, "--config", Path("config.json")}, Path("log"), Socket());
    const auto end = Clock::now() + std::chrono::seconds(30);
    while (ReadFile(Path("log")).find("geminid ready") == std::string::npos) {
      if (Clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return true;
  }

  // The bits of one job; empty if it failed.
  std::string Train() {
    const std::string report = Path("report.json");
    ::unlink(report.c_str());
    const pid_t job = Spawn(
        {trainer_program_, "--text", Path("text"), "--model", "gpt2-tiny", "--batch", "2",
         "--steps", "12", "--device-memory", "4MiB", "--progress", "lines", "--report", report},
        Path("job"), Socket());
    const int code = Wait(job, std::chrono::minutes(3));
    if (code == -1) {
      ::kill(job, SIGKILL);
      ::waitpid(job, nullptr, 0);
    }
    return code == 0 ? BitsOf(report) : "";
  }

  void ReleaseStrangers() {
    for (const uid_t uid : kStrangers) {
      const pid_t pid = ::fork();
      if (pid == 0) BeStranger(uid);
      strangers_.push_back(pid);
    }
  }

  // How long one answer takes, or nothing if none came within five seconds.
  std::optional<Clock::duration> Ask() {
    if (channel_ == nullptr) channel_ = testing::NewChannel(Socket());
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::Status status;
    const auto begin = Clock::now();
    if (!v1::AdminService::NewStub(channel_)
             ->GetStatus(&context, v1::GetStatusRequest(), &status)
             .ok()) {
      return std::nullopt;
    }
    books_add_up_ = books_add_up_ && status.ledger().adds_up();
    return Clock::now() - begin;
  }
  bool books_add_up() const { return books_add_up_; }

  // Tells the daemon to end, while the strangers go on.
  std::optional<Clock::duration> EndDaemon() {
    const auto begin = Clock::now();
    ::kill(daemon_, SIGTERM);
    const int code = Wait(daemon_, std::chrono::seconds(10));
    if (code == -1) return std::nullopt;
    daemon_ = -1;
    if (code != 0) std::cout << "the daemon's exit code is " << code << "\n";
    return code == 0 ? std::optional(Clock::now() - begin) : std::nullopt;
  }

  std::string Log() const { return ReadFile(Path("log")); }
  std::string JobsWords() const { return ReadFile(Path("job")); }

 private:
  [[noreturn]] void BeStranger(uid_t uid) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getuid() == 0 && (::setgid(uid) != 0 || ::setuid(uid) != 0)) ::_exit(71);
    // Not with what the parent knows of gRPC: it forked before it used any.
    std::mt19937 random(uid);
    while (true) {
      const Attack& attack = Attacks()[random() % Attacks().size()];
      attack.run(Socket());
    }
  }
  std::string Socket() const { return Path("s"); }
  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  const std::string daemon_program_;
  const std::string trainer_program_;
  testing::TemporaryFolder folder_;
  pid_t daemon_ = -1;
  std::vector<pid_t> strangers_;
  std::shared_ptr<grpc::Channel> channel_;
  bool books_add_up_ = true;
};

int Complain(const Scene& scene, const std::string& what) {
  const std::string log = scene.Log();
  std::cout << "hostile: " << what << "\n--- the daemon's last words\n"
            << log.substr(log.size() - std::min<size_t>(log.size(), 4000))
            << "\n--- the job's last words\n"
            << scene.JobsWords();
  return 1;
}

int Run(const std::string& daemon, const std::string& trainer, double seconds) {
  // With other programs on the processors an answer takes as long as they let it.
  const int64_t most = seconds >= 60 ? kMostMilliseconds : kMostMillisecondsShared;
  Scene scene(daemon, trainer);
  if (!scene.StartDaemon()) return Complain(scene, "the daemon does not start");
  const std::string calm = scene.Train();
  if (calm.empty()) return Complain(scene, "the job fails without any stranger");
  scene.ReleaseStrangers();
  std::atomic<bool> stop{false};
  std::vector<double> answers;
  int unanswered = 0;
  std::thread asker([&] {
    while (!stop.load()) {
      const auto answer = scene.Ask();
      if (answer.has_value()) answers.push_back(Milliseconds(*answer));
      unanswered += answer.has_value() ? 0 : 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  int jobs = 0;
  int different = 0;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    different += scene.Train() == calm ? 0 : 1;
    ++jobs;
  } while (Clock::now() < end);
  stop.store(true);
  asker.join();
  const auto ended = scene.EndDaemon();
  std::sort(answers.begin(), answers.end());
  const double slowest = answers.empty() ? 0 : answers.back();
  const double middle = answers.empty() ? 0 : answers[answers.size() / 2];
  std::cout << "hostile: " << jobs << " jobs, " << different << " with other bits or none; "
            << answers.size() << " answers, median " << middle << " ms, slowest " << slowest
            << " ms, " << unanswered << " missing; SIGTERM obeyed in "
            << (ended.has_value() ? absl::StrCat(Milliseconds(*ended), " ms") : "no time") << "\n";
  if (different > 0) return Complain(scene, "a job's bits are not those of a calm run");
  if (answers.empty() || unanswered > 0 || slowest > static_cast<double>(most)) {
    return Complain(scene, absl::StrCat("the daemon answers later than in ", most, " ms"));
  }
  if (!scene.books_add_up()) return Complain(scene, "the ledger does not add up");
  if (!ended.has_value() || *ended > kMostToEnd) {
    return Complain(scene, "the daemon does not obey SIGTERM within 2 s");
  }
  return 0;
}

}  // namespace
}  // namespace geminid::hostile

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: " << argv[0] << " DAEMON TRAINER SECONDS\n";
    return 64;
  }
  return geminid::hostile::Run(argv[1], argv[2], std::atof(argv[3]));
}
