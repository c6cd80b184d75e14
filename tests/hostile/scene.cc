#include "tests/hostile/scene.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::hostile {
namespace {

using Clock = std::chrono::steady_clock;

// As root each stranger is a user of its own; otherwise all are who runs this.
constexpr uid_t kStrangers[] = {64001, 64002};
constexpr size_t kMostAttacks = 64;

// Half of the processors this process may use; all of them where there is one.
cpu_set_t Half(bool second) {
  cpu_set_t all;
  CPU_ZERO(&all);
  ::sched_getaffinity(0, sizeof(all), &all);
  const int count = CPU_COUNT(&all);
  if (count < 2) return all;
  cpu_set_t half;
  CPU_ZERO(&half);
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &all)) continue;
    if ((seen++ >= count / 2) == second) CPU_SET(cpu, &half);
  }
  return half;
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
  const cpu_set_t ours = Half(false);
  if (pid > 0) ::sched_setaffinity(pid, sizeof(ours), &ours);
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

void Kill(pid_t pid) {
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

// The text of one member of a report, up to `end`.
std::string ValueOf(const std::string& text, const std::string& key, const std::string& end) {
  const size_t begin = text.find("\"" + key + "\"");
  return begin == std::string::npos ? "" : text.substr(begin, text.find(end, begin) - begin);
}

// The first steps sample and plan.
std::vector<double> StepsOf(const std::string& report) {
  constexpr size_t kLeftOut = 3;
  std::string list = ValueOf(report, "step_seconds", "]");
  list.erase(0, std::min(list.size(), list.find('[') + 1));
  std::istringstream numbers(list);
  std::vector<double> seconds;
  std::string number;
  while (std::getline(numbers, number, ','))
    seconds.push_back(std::strtod(number.c_str(), nullptr));
  seconds.erase(seconds.begin(),
                seconds.begin() + static_cast<std::ptrdiff_t>(std::min(seconds.size(), kLeftOut)));
  return seconds;
}

}  // namespace

struct Counts {
  Spoils spoils;
  std::array<std::atomic<uint64_t>, kMostAttacks> attacks;
  std::array<std::atomic<uint64_t>, std::size(kStrangers)> under_way;  // attack + 1, by stranger
};

namespace {

Counts* MapCounts(int fd) {
  void* const memory = ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  return static_cast<Counts*>(memory);
}

int NewCounts() {
  const int fd = ::memfd_create("hostile-counts", 0);
  if (fd < 0 || ::ftruncate(fd, sizeof(Counts)) != 0) std::abort();
  return fd;
}

}  // namespace

void BeStranger(const std::string& socket, int counts_fd, int stranger, int attack) {
  Counts* const counts = MapCounts(counts_fd);
  std::mt19937 random(::getpid() ^ static_cast<unsigned>(Clock::now().time_since_epoch().count()));
  while (true) {
    const size_t which =
        attack == kAnyAttack ? random() % Attacks().size() : static_cast<size_t>(attack);
    counts->under_way[static_cast<size_t>(stranger)] = which + 1;
    Attacks()[which].run(socket, &counts->spoils);
    ++counts->attacks[which];
  }
}

Scene::Scene(std::string daemon, std::string trainer)
    : daemon_program_(std::move(daemon)),
      trainer_program_(std::move(trainer)),
      counts_fd_(NewCounts()),
      counts_(MapCounts(counts_fd_.get())) {
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

Scene::~Scene() {
  RemoveStrangers();
  if (daemon_ > 0) Kill(daemon_);
  ::munmap(counts_, sizeof(Counts));
}

std::string Scene::processors() const {
  const cpu_set_t ours = Half(false);
  const cpu_set_t theirs = Half(true);
  if (CPU_EQUAL(&ours, &theirs)) return "all on one processor";
  return absl::StrCat("daemon and job on ", CPU_COUNT(&ours), " processors, strangers on ",
                      CPU_COUNT(&theirs), " others");
}

bool Scene::StartDaemon() {
  ::unlink(Path("log").c_str());  // of one before
  daemon_ = Spawn({daemon_program_, "--config", Path("config.json")}, Path("log"), Socket());
  const auto end = Clock::now() + std::chrono::seconds(30);
  while (ReadFile(Path("log")).find("geminid ready") == std::string::npos) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

Job Scene::Train() {
  const std::string path = Path("report.json");
  ::unlink(path.c_str());
  const pid_t pid =
      Spawn({trainer_program_, "--text", Path("text"), "--model", "gpt2-tiny", "--batch", "2",
             "--steps", "24", "--device-memory", "4MiB", "--progress", "lines", "--report", path},
            Path("job"), Socket());
  const int code = Wait(pid, std::chrono::minutes(3));
  if (code == -1) Kill(pid);
  if (code != 0) return {};
  const std::string report = ReadFile(path);
  const std::string losses = ValueOf(report, "loss_hex", "]");
  const std::string weights = ValueOf(report, "weights_sha256", ",");
  if (losses.empty() || weights.empty()) return {};
  return {.bits = losses + weights, .step_seconds = StepsOf(report)};
}

// Another program begins: gRPC, which this one uses, does not survive a fork.
void Scene::ReleaseStrangers(const std::vector<size_t>& attacks) {
  char program[4096] = {};
  if (::readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) std::abort();
  const std::string socket = Socket();
  const std::string counts = absl::StrCat(counts_fd_.get());
  const cpu_set_t theirs = Half(true);
  const bool is_root = ::getuid() == 0;
  for (size_t stranger = 0; stranger < std::size(kStrangers); ++stranger) {
    const uid_t uid = kStrangers[stranger];
    const std::string number = absl::StrCat(stranger);
    const std::string attack = attacks.empty() ? absl::StrCat(kAnyAttack)
                                               : absl::StrCat(attacks[stranger % attacks.size()]);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::sched_setaffinity(0, sizeof(theirs), &theirs);
      if (is_root && (::setgid(uid) != 0 || ::setuid(uid) != 0)) ::_exit(71);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execl(program, program, kStrangerFlag, socket.c_str(), counts.c_str(), number.c_str(),
              attack.c_str(), nullptr);
      ::_exit(127);
    }
    strangers_.push_back(pid);
  }
}

void Scene::RemoveStrangers() {
  for (const pid_t pid : strangers_) {
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == pid) {
      ++dead_strangers_;
    } else {
      Kill(pid);
    }
  }
  strangers_.clear();
  for (auto& attack : counts_->under_way) attack = 0;
}

std::optional<Scene::Answer> Scene::Ask() {
  if (channel_ == nullptr) channel_ = testing::NewChannel(Socket());
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
  Answer answer;
  const auto begin = Clock::now();
  if (!v1::AdminService::NewStub(channel_)
           ->GetStatus(&context, v1::GetStatusRequest(), &answer.status)
           .ok()) {
    return std::nullopt;
  }
  answer.time = Clock::now() - begin;
  return answer;
}

std::optional<Clock::duration> Scene::EndDaemon() {
  const auto begin = Clock::now();
  ::kill(daemon_, SIGTERM);
  const int code = Wait(daemon_, std::chrono::minutes(1));
  if (code == -1) return std::nullopt;
  daemon_ = -1;
  return code == 0 ? std::optional(Clock::now() - begin) : std::nullopt;
}

uint64_t Scene::spoils() const { return counts_->spoils.load(); }

std::vector<size_t> Scene::AttacksUnderWay() const {
  std::vector<size_t> attacks;
  for (const auto& attack : counts_->under_way) {
    const uint64_t number = attack.load();
    if (number > 0 && number <= Attacks().size()) attacks.push_back(number - 1);
  }
  return attacks;
}

std::string Scene::UnderWay() const {
  std::vector<std::string> names;
  for (const size_t attack : AttacksUnderWay()) names.emplace_back(Attacks()[attack].name);
  return names.empty() ? "nothing" : absl::StrJoin(names, " and ");
}

std::vector<std::pair<std::string, uint64_t>> Scene::attacks() const {
  std::vector<std::pair<std::string, uint64_t>> counts;
  for (size_t i = 0; i < Attacks().size(); ++i) {
    counts.emplace_back(Attacks()[i].name, counts_->attacks[i].load());
  }
  return counts;
}

std::string Scene::LastWords() const {
  const std::string log = ReadFile(Path("log"));
  const std::string job = ReadFile(Path("job"));
  return absl::StrCat(
      "--- the daemon's last words\n", log.substr(log.size() - std::min<size_t>(log.size(), 4000)),
      "\n--- the job's last words\n", job.substr(job.size() - std::min<size_t>(job.size(), 2000)));
}

}  // namespace geminid::hostile
