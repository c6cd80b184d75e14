// What keeps device memory alive, and who sees it: G1 to G4 and G22.
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "tools/gpu-verify/device.h"
#include "tools/gpu-verify/nvml.h"
#include "tools/gpu-verify/probe.h"

namespace geminid::gpu_verify {
namespace {

// Makes a slab with a pattern, sends its descriptor and waits to be killed.
Role StartExporter(const Context& context, uint64_t bytes, uint32_t seed) {
  return Role::Start("exporter", [&context, bytes, seed](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    Slab slab = Slab::Create(gpu, bytes);
    slab.Map();
    Fill(gpu, slab.address(), bytes, seed);
    const base::UniqueFd fd = slab.Export();
    channel.Send("exported", fd.get());
    channel.Receive();
  });
}

// Receives descriptors with their seeds; answers each with the number of words that differ.
Role StartReader(const Context& context, uint64_t bytes) {
  return Role::Start("reader", [&context, bytes](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    channel.Send("ready");
    while (true) {
      const Channel::Message message = channel.Receive();
      Slab slab = Slab::Import(gpu, message.fd.get(), bytes);
      slab.Map(CU_MEM_ACCESS_FLAGS_PROT_READ);
      const auto seed = static_cast<uint32_t>(std::stoul(message.text));
      channel.Send(std::to_string(CountMismatches(gpu, slab.address(), bytes, seed)));
    }
  });
}

uint64_t AskReader(const Role& reader, const base::UniqueFd& fd, uint32_t seed) {
  reader.channel().Send(std::to_string(seed), fd.get());
  return std::stoull(reader.channel().Receive().text);
}

void KillAndWait(const Role& role) {
  constexpr double kEndSeconds = 20;
  role.Kill();
  if (!role.WaitForEnd(kEndSeconds)) {
    throw ProbeError("a killed process did not end within 20 s");
  }
}

// Exports, ends every process that uses CUDA, and reads in a new process. The driver may have shut
// down the GPU in between. An error of the reader counts as loss.
bool SurvivesLastProcess(const Context& context, uint32_t seed, std::string* error) {
  const uint64_t bytes = context.effort.pattern_bytes;
  base::UniqueFd fd;
  {
    const Role exporter = StartExporter(context, bytes, seed);
    fd = exporter.channel().Receive().fd;
    KillAndWait(exporter);
  }
  constexpr double kShutdownSeconds = 0.5;  // the driver may still shut down after the end
  Pause(kShutdownSeconds);
  try {
    const Role reader = StartReader(context, bytes);
    reader.channel().Receive();
    const uint64_t mismatches = AskReader(reader, fd, seed);
    if (mismatches != 0) *error = std::to_string(mismatches) + " words differ";
    return mismatches == 0;
  } catch (const ProbeError& lost) {
    *error = lost.what();
    return false;
  }
}

// Descriptors of the GPUs' device files, as a process without CUDA may hold them.
std::vector<base::UniqueFd> HoldDeviceFiles() {
  std::vector<base::UniqueFd> held;
  constexpr int kMostDevices = 16;
  for (int i = 0; i < kMostDevices; ++i) {
    base::UniqueFd fd(open(("/dev/nvidia" + std::to_string(i)).c_str(), O_RDWR | O_CLOEXEC));
    if (fd.valid()) held.push_back(std::move(fd));
  }
  return held;
}

std::string PciBusId(const Context& context) {
  const Role role = Role::Start("namer", [&context](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    char id[32] = "";
    gpu.Must(gpu.api().device_get_pci_bus_id(id, sizeof(id), gpu.device()), "cuDeviceGetPCIBusId");
    channel.Send(id);
  });
  return role.channel().Receive().text;
}

// Asks NVML in a process that ends, because the library keeps the device files open.
std::string Persistence(const Context& context) {
  const std::string bus_id = PciBusId(context);
  const Role role = Role::Start("accountant", [&bus_id](Channel& channel) {
    const std::optional<NvmlView> nvml = ReadNvml(bus_id);
    channel.Send(nvml ? nvml->persistence : "unknown");
  });
  return role.channel().Receive().text;
}

std::string PollNames(int events) {
  std::string names;
  const auto add = [&](int bit, const char* name) {
    if (events & bit) names += (names.empty() ? "" : "|") + std::string(name);
  };
  add(POLLIN, "IN");
  add(POLLOUT, "OUT");
  add(POLLERR, "ERR");
  add(POLLHUP, "HUP");
  add(POLLNVAL, "NVAL");
  return names.empty() ? "none" : names;
}

}  // namespace

Outcome ProbeContextFreeExport(const Context& context) {
  const uint64_t bytes = context.effort.slab_bytes;
  constexpr double kMostOverheadBytes = 16.0 * kMib;  // a context costs hundreds
  const Observer observer(context.driver, context.device);
  const auto before = static_cast<double>(observer.FreeBytes());
  const Role creator = Role::Start("creator", [&context, bytes](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    channel.Send("initialised");
    channel.Receive();
    const Slab slab = Slab::Create(gpu, bytes);
    const base::UniqueFd fd = slab.Export();
    channel.Send("exported", fd.get());
    channel.Receive();
  });
  creator.channel().Receive();
  const double init_bytes = before - static_cast<double>(observer.FreeBytes());
  creator.channel().Send("create");
  const base::UniqueFd fd = creator.channel().Receive().fd;
  const double all_bytes = before - static_cast<double>(observer.FreeBytes());
  const double overhead_bytes = all_bytes - static_cast<double>(bytes);

  // The descriptor must be usable, not only sendable.
  const Role user = Role::Start("user", [&context, bytes](Channel& channel) {
    Gpu gpu(context.driver, context.device);
    gpu.MakeContext();
    const Channel::Message message = channel.Receive();
    Slab slab = Slab::Import(gpu, message.fd.get(), bytes);
    slab.Map();
    Fill(gpu, slab.address(), bytes, 1);
    channel.Send(std::to_string(CountMismatches(gpu, slab.address(), bytes, 1)));
  });
  user.channel().Send("import", fd.get());
  const bool usable = user.channel().Receive().text == "0";
  Outcome outcome = Judge(usable && overhead_bytes <= kMostOverheadBytes,
                          "possible; cuInit takes " + Bytes(init_bytes) + " of device memory, " +
                              Bytes(static_cast<double>(bytes)) + " and its export " +
                              Bytes(overhead_bytes - init_bytes) + " more than asked",
                          usable ? "more than " + Bytes(kMostOverheadBytes) + " of overhead"
                                 : "an importer does not read back what it wrote");
  outcome.numbers = {{"init_bytes", init_bytes}, {"overhead_bytes", overhead_bytes}};
  return outcome;
}

Outcome ProbeExporterDeath(const Context& context) {
  const uint64_t bytes = context.effort.pattern_bytes;
  const Role reader = StartReader(context, bytes);  // also keeps the GPU initialised; see G3
  reader.channel().Receive();
  int kills = 0;
  int intact = 0;
  while (kills < context.effort.kills && (kills == 0 || Now() < context.soft_deadline)) {
    std::vector<Role> exporters;
    for (int i = 0; i < context.effort.lanes; ++i) {
      exporters.push_back(StartExporter(context, bytes, static_cast<uint32_t>(kills + i)));
    }
    std::vector<base::UniqueFd> fds;
    for (const Role& exporter : exporters) fds.push_back(exporter.channel().Receive().fd);
    for (const Role& exporter : exporters) exporter.Kill();
    for (const Role& exporter : exporters) KillAndWait(exporter);
    for (size_t i = 0; i < fds.size(); ++i) {
      intact +=
          AskReader(reader, fds[i], static_cast<uint32_t>(kills) + static_cast<uint32_t>(i)) == 0;
    }
    kills += context.effort.lanes;
    context.progress(std::to_string(kills) + " killed");
  }
  Outcome outcome = Judge(intact == kills,
                          std::to_string(intact) + " of " + std::to_string(kills) +
                              " patterns of " + Bytes(static_cast<double>(bytes)) + " intact",
                          "a pattern was lost with its exporter");
  outcome.numbers = {{"kills", kills}, {"intact", intact}};
  return outcome;
}

Outcome ProbeLastProcess(const Context& context) {
  const std::string persistence = Persistence(context);
  std::string alone_error;
  const bool alone = SurvivesLastProcess(context, 1, &alone_error);
  std::string figure = "descriptor alone: " + (alone ? std::string("intact") : "lost");
  if (!alone) figure += " (" + alone_error + ")";
  bool held_intact = alone;
  std::string held_error = alone_error;
  const std::vector<base::UniqueFd> held = HoldDeviceFiles();
  if (held.empty()) {
    figure += "; no /dev/nvidiaN to hold";
  } else {
    held_intact = SurvivesLastProcess(context, 2, &held_error);
    figure += "; with /dev/nvidiaN held: " + (held_intact ? std::string("intact") : "lost");
  }
  figure += "; persistence mode " + persistence;
  Outcome outcome = Judge(held_intact, figure, held_error);
  outcome.numbers = {{"alone_intact", alone}, {"held_intact", held_intact}};
  return outcome;
}

Outcome ProbePollEvents(const Context& context) {
  const Role exporter = StartExporter(context, context.effort.pattern_bytes, 1);
  const base::UniqueFd fd = exporter.channel().Receive().fd;
  const auto poll_now = [&fd] {
    pollfd entry{fd.get(), POLLIN | POLLOUT, 0};
    poll(&entry, 1, 0);
    return static_cast<int>(entry.revents);
  };
  const int alive = poll_now();
  const base::UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  const bool watchable = epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd.get(), &event) == 0;
  const std::string watch = watchable ? "epoll takes it" : std::string("epoll: ") + strerror(errno);
  KillAndWait(exporter);
  const int orphaned = poll_now();
  constexpr int kBad = POLLERR | POLLHUP | POLLNVAL;
  Outcome outcome = Judge(((alive | orphaned) & kBad) == 0,
                          "events " + PollNames(alive) + ", after the exporter's end " +
                              PollNames(orphaned) + "; " + watch,
                          "a descriptor store that watches it drops it");
  outcome.numbers = {{"events", alive}, {"events_orphaned", orphaned}, {"epoll", watchable}};
  return outcome;
}

Outcome ProbeAccounting(const Context& context) {
  const uint64_t bytes = context.effort.slab_bytes;
  const std::string bus_id = PciBusId(context);
  const Observer observer(context.driver, context.device);
  const uint64_t before = observer.FreeBytes();
  base::UniqueFd fd;
  {
    const Role exporter = StartExporter(context, bytes, 1);
    fd = exporter.channel().Receive().fd;
    KillAndWait(exporter);
  }
  constexpr double kSettleSeconds = 3;
  // Waits until the exporter's context is gone, so that only the slab is missing.
  const uint64_t held = observer.AwaitFreeBytes(before - bytes, kSettleSeconds);
  const std::optional<NvmlView> nvml = ReadNvml(bus_id);
  fd.Reset();
  const uint64_t after = observer.AwaitFreeBytes(before, kSettleSeconds);
  const auto missing = static_cast<double>(before) - static_cast<double>(held);
  const auto left = static_cast<double>(before) - static_cast<double>(after);
  const bool shown = missing >= static_cast<double>(bytes);
  const bool returned = left < static_cast<double>(bytes) / 2;
  std::string figure = "an orphan of " + Bytes(static_cast<double>(bytes)) + " is shown as " +
                       Bytes(missing) + " used, " + Bytes(left) + " after its descriptor is closed";
  if (nvml) {
    figure += "; NVML: " + Bytes(static_cast<double>(nvml->used_bytes)) + " used, " +
              Bytes(static_cast<double>(nvml->attributed_bytes)) + " attributed to " +
              std::to_string(nvml->processes) + " processes";
  }
  Outcome outcome = Judge(shown && returned, figure,
                          shown ? "the memory did not come back" : "the orphan is not counted");
  outcome.numbers = {{"orphan_bytes", static_cast<double>(bytes)},
                     {"missing_bytes", missing},
                     {"left_bytes", left}};
  if (nvml) {
    outcome.numbers.emplace_back("nvml_used_bytes", nvml->used_bytes);
    outcome.numbers.emplace_back("nvml_attributed_bytes", nvml->attributed_bytes);
    outcome.numbers.emplace_back("nvml_processes", nvml->processes);
  }
  return outcome;
}

}  // namespace geminid::gpu_verify
