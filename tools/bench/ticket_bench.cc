// Compares copies under the daemon's tickets with a plain loop of the driver's copies between
// pinned memory and the same GPU, in one process, in turn: up, down, and both at once.
//
// The copies of a lane cycle through kChunks chunks, so that kChunks requests are outstanding. A
// copy counts once it has arrived, and the time includes the last arrival. A round is one
// measurement of each kind; the ratio is the median of the rounds' ratios.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/exit_code.h"
#include "geminid/private_daemon.h"
#include "geminid/session.h"
#include "gpu/driver.h"

namespace geminid {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr size_t kChunks = 4;
constexpr absl::Duration kAgentTimeout = absl::Seconds(20);
constexpr absl::Duration kRegistrationTimeout = absl::Seconds(20);
constexpr uint64_t kMostMiB = 1024;

constexpr const char* kHelp =
    "ticket_bench [--chunk MIB] [--rounds N] [--milliseconds N]\n"
    "\n"
    "Copies under tickets beside a plain loop between pinned memory and the GPU, up, down and "
    "both\n"
    "at once. Prints one JSON object. Starts a daemon of its own.\n"
    "\n"
    "  --chunk MIB        of one copy [16]\n"
    "  --rounds N         of which medians are taken [5]\n"
    "  --milliseconds N   of one measurement [400]\n"
    "\n"
    "Exit status: 0 measured, 1 a copy fails, 2 usage, 3 there is no GPU.\n";

struct Flags {
  uint64_t chunk_mib = 16;
  uint64_t rounds = 5;
  uint64_t milliseconds = 400;
};

[[noreturn]] void End(const absl::Status& status, int code = base::kExitFailed) {
  std::fprintf(stderr, "ticket_bench: %s\n", status.ToString().c_str());
  std::exit(code);
}

template <typename T>
T Must(absl::StatusOr<T> result) {
  if (!result.ok()) End(result.status());
  return *std::move(result);
}

void Must(const absl::Status& status) {
  if (!status.ok()) End(status);
}

// One direction of one kind of copies: starts copy `slot`, or waits until it has arrived.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual void EnterThread() {}
  virtual void Start(size_t slot) = 0;
  virtual void Wait(size_t slot) = 0;
};

class TicketLane : public Lane {
 public:
  TicketLane(Session* session, uint64_t bytes, bool up)
      : session_(session), up_(up), pending_(kChunks) {
    const std::vector<ChunkSpec> specs(kChunks, {"bench", ChunkKind::kGeneric, bytes, true});
    chunks_ = Must(session->Allocate(specs));
    if (up) return;
    for (const ChunkHandle& chunk : chunks_) Must(session->Transfer(Copy(chunk, true)).Wait());
  }

  void Start(size_t slot) override {
    // Requests are served in order, so the drop is done before the copy gets its extent.
    if (up_ && session_->ResidencyOf(chunks_[slot].id) != Residency::kAbsent) {
      session_->Drop(chunks_[slot].id);
    }
    pending_[slot] = session_->Transfer(Copy(chunks_[slot], up_));
  }
  void Wait(size_t slot) override { Must(pending_[slot].Wait()); }

 private:
  static TransferSpec Copy(const ChunkHandle& chunk, bool up) {
    TransferSpec spec;
    spec.source = spec.destination = chunk.id;
    spec.bytes = chunk.bytes;
    spec.allocate_destination = spec.publish_when_done = up;
    return spec;
  }

  Session* session_;
  bool up_;
  std::vector<ChunkHandle> chunks_;
  std::vector<Pending> pending_;
};

// The calling thread's current context must be the GPU's.
class PlainLane : public Lane {
 public:
  PlainLane(const gpu::DriverApi& api, CUcontext context, uint64_t bytes, bool up)
      : api_(api), context_(context), bytes_(bytes), up_(up) {
    PlainLane::EnterThread();
    Check(api.stream_create(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (size_t slot = 0; slot < kChunks; ++slot) {
      Check(api.mem_host_alloc(&host_[slot], bytes, 0), "cuMemHostAlloc");
      std::memset(host_[slot], 0, bytes);
      Check(api.mem_alloc(&device_[slot], bytes), "cuMemAlloc");
      Check(api.event_create(&arrived_[slot], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    }
  }
  ~PlainLane() override {
    for (size_t slot = 0; slot < kChunks; ++slot) {
      api_.event_destroy(arrived_[slot]);
      api_.mem_free(device_[slot]);
      api_.mem_free_host(host_[slot]);
    }
    api_.stream_destroy(stream_);
  }

  void EnterThread() override { Check(api_.ctx_set_current(context_), "cuCtxSetCurrent"); }
  void Start(size_t slot) override {
    if (up_) {
      Check(api_.memcpy_htod_async(device_[slot], host_[slot], bytes_, stream_),
            "cuMemcpyHtoDAsync");
    } else {
      Check(api_.memcpy_dtoh_async(host_[slot], device_[slot], bytes_, stream_),
            "cuMemcpyDtoHAsync");
    }
    Check(api_.event_record(arrived_[slot], stream_), "cuEventRecord");
  }
  void Wait(size_t slot) override {
    Check(api_.event_synchronize(arrived_[slot]), "cuEventSynchronize");
  }

 private:
  void Check(CUresult result, const char* call) { Must(gpu::ToStatus(api_, result, call)); }

  const gpu::DriverApi& api_;
  CUcontext context_;
  uint64_t bytes_;
  bool up_;
  CUstream stream_ = nullptr;
  void* host_[kChunks] = {};
  CUdeviceptr device_[kChunks] = {};
  CUevent arrived_[kChunks] = {};
};

// Bytes per second: cycles until the time is over, then waits for copies in flight.
double RateOf(Lane* lane, uint64_t bytes, Clock::duration time) {
  lane->EnterThread();
  const Clock::time_point begin = Clock::now();
  for (size_t slot = 0; slot < kChunks; ++slot) lane->Start(slot);
  size_t copies = 0;
  for (; Clock::now() - begin < time; ++copies) {
    lane->Wait(copies % kChunks);
    lane->Start(copies % kChunks);
  }
  for (size_t left = 0; left < kChunks; ++left, ++copies) lane->Wait(copies % kChunks);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return static_cast<double>(copies * bytes) / seconds;
}

// All lanes at once: the sum of their rates.
double RateOfAll(const std::vector<Lane*>& lanes, uint64_t bytes, Clock::duration time) {
  std::vector<double> rates(lanes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < lanes.size(); ++i) {
    threads.emplace_back([&, i] { rates[i] = RateOf(lanes[i], bytes, time); });
  }
  double sum = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    threads[i].join();
    sum += rates[i];
  }
  return sum;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void PrintRow(const char* direction, const std::vector<Lane*>& tickets,
              const std::vector<Lane*>& plain, const Flags& flags, bool first) {
  const uint64_t bytes = flags.chunk_mib * kMiB;
  const auto time = std::chrono::milliseconds(flags.milliseconds);
  RateOfAll(tickets, bytes, time / 4);  // warms up both
  RateOfAll(plain, bytes, time / 4);
  std::vector<double> rates[2];
  std::vector<double> ratios;
  for (uint64_t round = 0; round < flags.rounds; ++round) {
    rates[0].push_back(RateOfAll(tickets, bytes, time));
    rates[1].push_back(RateOfAll(plain, bytes, time));
    ratios.push_back(rates[0].back() / rates[1].back());
  }
  std::printf(
      "%s{\"direction\": \"%s\", \"tickets_bytes_per_second\": %.6g, "
      "\"plain_bytes_per_second\": %.6g, \"ratio\": %.4f}",
      first ? "" : ", ", direction, Median(rates[0]), Median(rates[1]), Median(ratios));
}

std::unique_ptr<PrivateDaemon> StartDaemon(uint64_t bytes) {
  PrivateDaemonOptions options;
  const std::string home = std::to_string(2 * kChunks * bytes / kMiB + 64) + "MiB";
  options.arguments = {"--host-memory", home, "--device", "cuda"};
  options.timeout = absl::Seconds(30);
  return Must(PrivateDaemon::Start(options));
}

// Retries, because the daemon's agent may not be ready yet.
std::unique_ptr<Session> Connect(const std::string& socket, uint64_t bytes) {
  ConnectOptions options;
  options.socket = socket;
  options.device = DeviceIndex{};
  options.device_memory_bytes = 2 * kChunks * bytes + 4 * kMiB;
  const absl::Time end = base::MonotonicNow() + kAgentTimeout;
  while (true) {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
    if (!absl::IsUnavailable(session.status()) || base::MonotonicNow() > end)
      return Must(std::move(session));
    absl::SleepFor(absl::Milliseconds(20));
  }
}

// Copies of memory that is not registered yet take a slower path, which training soon leaves.
void AwaitRegistration(const Session& session) {
  const absl::Time end = base::MonotonicNow() + kRegistrationTimeout;
  while (base::MonotonicNow() < end) {
    const HostRegistration all = session.GetHostRegistration();
    if (all.refused_bytes > 0) End(absl::ResourceExhaustedError("registration: " + all.refusal));
    if (all.bytes > 0 && all.registered_bytes >= all.bytes) return;
    absl::SleepFor(absl::Milliseconds(10));
  }
  End(absl::DeadlineExceededError("host memory was not registered within 20 s"));
}

void Measure(const Flags& flags) {
  const absl::StatusOr<const gpu::DriverApi*> driver = gpu::LoadDriver();
  if (!driver.ok()) End(driver.status(), base::kExitUnavailable);
  const gpu::DriverApi& api = **driver;
  const uint64_t bytes = flags.chunk_mib * kMiB;
  const std::unique_ptr<PrivateDaemon> daemon = StartDaemon(bytes);
  const std::unique_ptr<Session> session = Connect(daemon->socket(), bytes);
  CUdevice device = 0;
  CUcontext context = nullptr;
  Must(gpu::ToStatus(api, api.device_get(&device, 0), "cuDeviceGet"));
  Must(gpu::ToStatus(api, api.primary_ctx_retain(&context, device), "cuDevicePrimaryCtxRetain"));
  {
    TicketLane up(session.get(), bytes, true);
    TicketLane down(session.get(), bytes, false);
    PlainLane plain_up(api, context, bytes, true);
    PlainLane plain_down(api, context, bytes, false);
    AwaitRegistration(*session);
    std::printf("{\"device\": \"%s\", \"chunk_bytes\": %llu, \"under_way\": %zu, \"rows\": [",
                session->device_description().name.c_str(), static_cast<unsigned long long>(bytes),
                kChunks);
    PrintRow("up", {&up}, {&plain_up}, flags, true);
    PrintRow("down", {&down}, {&plain_down}, flags, false);
    PrintRow("both", {&up, &down}, {&plain_up, &plain_down}, flags, false);
    std::printf("]}\n");
  }
  api.primary_ctx_release(device);
}

bool ParseNumber(const char* text, uint64_t most, uint64_t* value) {
  const char* const end = text + std::strlen(text);
  const auto [stop, code] = std::from_chars(text, end, *value);
  return code == std::errc() && stop == end && *value > 0 && *value <= most;
}

bool ParseFlags(int argc, char** argv, Flags* flags) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const bool good = name == "--chunk"    ? ParseNumber(argv[i + 1], kMostMiB, &flags->chunk_mib)
                      : name == "--rounds" ? ParseNumber(argv[i + 1], 1000, &flags->rounds)
                      : name == "--milliseconds"
                          ? ParseNumber(argv[i + 1], 60'000, &flags->milliseconds)
                          : false;
    if (!good) return false;
  }
  return argc % 2 == 1;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--help") == 0) {
    std::fputs(kHelp, stdout);
    return base::kExitOk;
  }
  Flags flags;
  if (!ParseFlags(argc, argv, &flags)) {
    std::fputs(kHelp, stderr);
    return base::kExitUsage;
  }
  Measure(flags);
  return base::kExitOk;
}

}  // namespace
}  // namespace geminid

int main(int argc, char** argv) { return geminid::Main(argc, argv); }
