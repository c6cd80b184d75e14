// How soon the next daemon serves after one is killed.
//
//   restart_time [KILLS [CHUNKS [GIB]]]
//
// A session has an arena of GIB (64), which uses almost no memory, and CHUNKS (65536) chunks that
// share it. Its private daemon is killed KILLS (50) times. The next daemon starts at once, and the
// program waits for a request sent at the moment of the kill. Prints the median, the 99th
// percentile and the longest of those times.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "daemon/holder/holder_store.h"
#include "daemon/os/log.h"
#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"

extern char** environ;

namespace geminid {
namespace {

constexpr char kServe[] = "--serve";
using base::kGiB;
constexpr int kChunksPerCall = 16384;

struct Setting {
  int kills = 50;
  int chunks = 65536;
  int gib = 64;
};

// The daemon's process.
absl::Status Serve(const std::string& socket, const std::string& gib) {
  config::SettingsSources sources;
  sources.environment = [](const std::string&) { return std::nullopt; };
  sources.flags = {{"socket", socket},
                   {"host_memory", "1GiB"},
                   {"device_memory", gib + "GiB"},
                   {"log_level", "error"}};
  GEMINID_ASSIGN_OR_RETURN(const config::Settings settings, config::ResolveSettings(sources));
  os::ConfigureLog(settings.log_level, settings.log_format);
  service::DaemonOptions options;
  options.arena_backing = memory::PageBacking::kSparse;
  options.open_store = [&]() -> absl::StatusOr<std::unique_ptr<holder::DescriptorStore>> {
    holder::HolderOptions holder;
    GEMINID_ASSIGN_OR_RETURN(holder.binary, holder::FindHolder());
    holder.socket = socket + shm::kHolderSuffix;
    holder.patience = absl::Seconds(60);
    return holder::HolderStore::Open(holder);
  };
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<service::Daemon> daemon,
                           service::Daemon::Start(settings, std::move(options)));
  daemon->Run();
  return absl::OkStatus();
}

pid_t StartDaemon(const std::string& socket, int gib) {
  std::vector<std::string> arguments = {"/proc/self/exe", kServe, socket, absl::StrCat(gib)};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t pid = -1;
  return ::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) == 0 ? pid : -1;
}

absl::StatusOr<std::unique_ptr<Session>> ConnectSoon(const ConnectOptions& options) {
  for (const absl::Time give_up = base::MonotonicNow() + absl::Seconds(30);;) {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
    if (session.ok() || base::MonotonicNow() > give_up) return session;
    absl::SleepFor(absl::Milliseconds(10));  // the daemon is still starting
  }
}

absl::Status Register(Session* session, const Setting& setting) {
  const uint64_t bytes =
      setting.gib * kGiB / setting.chunks / kExtentAlignmentBytes * kExtentAlignmentBytes;
  for (int made = 0; made < setting.chunks;) {
    std::vector<ChunkSpec> specs;
    for (; made < setting.chunks && specs.size() < kChunksPerCall; ++made) {
      specs.push_back({absl::StrCat("chunk ", made), ChunkKind::kGeneric, bytes, false});
    }
    GEMINID_ASSIGN_OR_RETURN(const std::vector<ChunkHandle> chunks, session->Allocate(specs));
    std::vector<Pending> placed;
    for (const ChunkHandle& chunk : chunks)
      placed.push_back(session->AllocateExtent(chunk.id, kAnyOffset, false));
    for (const Pending& each : placed) GEMINID_RETURN_IF_ERROR(each.Wait(absl::Minutes(1)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> Measure(const std::string& folder, const Setting& setting) {
  ConnectOptions options;
  options.socket = folder + "/geminid.sock";
  options.job = "restart";
  options.device_memory_bytes = setting.gib * kGiB;
  options.timeout = absl::Seconds(60);
  pid_t daemon = StartDaemon(options.socket, setting.gib);
  GEMINID_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, ConnectSoon(options));
  GEMINID_RETURN_IF_ERROR(Register(session.get(), setting));
  std::vector<double> milliseconds;
  for (int i = 0; i < setting.kills; ++i) {
    ::kill(daemon, SIGKILL);
    const absl::Time killed = base::MonotonicNow();
    const Pending request = session->Publish(ChunkId{static_cast<uint32_t>(i)});
    ::waitpid(daemon, nullptr, 0);
    daemon = StartDaemon(options.socket, setting.gib);
    GEMINID_RETURN_IF_ERROR(request.Wait(absl::Minutes(1)));
    milliseconds.push_back(absl::ToDoubleMilliseconds(base::MonotonicNow() - killed));
  }
  ::kill(daemon, SIGTERM);
  ::waitpid(daemon, nullptr, 0);
  return milliseconds;
}

int Main(const Setting& setting) {
  std::string folder = (std::filesystem::temp_directory_path() / "geminid-bench-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  absl::StatusOr<std::vector<double>> times = Measure(folder, setting);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!times.ok() || times->empty()) {
    std::fprintf(stderr, "restart_time: %s\n", times.status().ToString().c_str());
    return 1;
  }
  std::sort(times->begin(), times->end());
  const auto at = [&](size_t percent) { return (*times)[(times->size() - 1) * percent / 100]; };
  std::printf(
      "%zu kills, %d chunks on %d GiB: service back after p50 %.0f ms, p99 %.0f ms, "
      "longest %.0f ms\n",
      times->size(), setting.chunks, setting.gib, at(50), at(99), times->back());
  return 0;
}

}  // namespace
}  // namespace geminid

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == geminid::kServe) {
    const absl::Status status = geminid::Serve(argv[2], argv[3]);
    if (!status.ok()) std::fprintf(stderr, "daemon: %s\n", status.ToString().c_str());
    return status.ok() ? 0 : 1;
  }
  geminid::Setting setting;
  int* const numbers[] = {&setting.kills, &setting.chunks, &setting.gib};
  for (int i = 1; i < argc; ++i) {
    if (i <= 3 && absl::SimpleAtoi(argv[i], numbers[i - 1]) && *numbers[i - 1] > 0) continue;
    std::fprintf(stderr, "usage: restart_time [KILLS [CHUNKS [GIB]]]\n");
    return 2;
  }
  return geminid::Main(setting);
}
