#include "tools/geminictl/doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace geminid::ctl {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

MachineFindings GoodMachine() {
  MachineFindings found;
  found.kernel_release = "6.18.0";
  found.machine.ram_bytes = 64 * kGiB;
  found.machine.memlock_limit_bytes = kNoLimit;
  found.machine.huge_pages.shmem_on_advice = true;
  found.machine.huge_pages.shmem_enabled = "advise";
  found.available_bytes = 32 * kGiB;
  found.cgroup_version = 2;
  found.open_files_limit = 1 << 20;
  found.cpu = {.is_x86 = true, .avx2 = true, .avx512 = true, .avx512_bf16 = true, .amx_bf16 = true};
  found.dev_shm = Space{kGiB, kGiB};
  found.temporary_folder = "/tmp";
  found.temporary_space = Space{2 * kGiB, 4 * kGiB};
  return found;
}

SocketFindings GoodSocket() {
  SocketFindings found;
  found.path = "/run/s";
  found.exists = true;
  found.is_socket = true;
  found.mode = 0660;
  v1::Status status;
  status.set_version("1.0");
  status.set_phase("serving");
  status.mutable_ledger()->set_adds_up(true);
  v1::TierLedger* const tier = status.mutable_ledger()->add_tiers();
  tier->set_tier(v1::TIER_HOST);
  tier->set_capacity_bytes(32 * kGiB);
  found.daemon = status;
  return found;
}

Check Find(const std::vector<Check>& checks, const std::string& id) {
  for (const Check& check : checks) {
    if (check.id == id) return check;
  }
  ADD_FAILURE() << "no check " << id;
  return {};
}

TEST(JudgeDaemon, Devices_AreListed) {
  SocketFindings socket = GoodSocket();
  v1::DeviceDescription* const device = socket.daemon->add_devices();
  device->set_kind(v1::DEVICE_KIND_HOST);
  device->set_capacity_bytes(8 * kGiB);
  const Check check = Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "daemon_devices");
  EXPECT_EQ(check.verdict, Verdict::kPass);
  EXPECT_EQ(check.found, "device 0: host, 8.0 GiB");
}

TEST(JudgeDaemon, DeviceLargerThanItsNumaNode_IsWarnedOf) {
  SocketFindings socket = GoodSocket();
  v1::DeviceDescription* const device = socket.daemon->add_devices();
  device->set_index(1);
  device->set_capacity_bytes(8 * kGiB);
  device->set_numa_node(1);
  MachineFindings machine = GoodMachine();
  machine.machine.nodes = {{0, 64 * kGiB, kGiB}, {1, 4 * kGiB, kGiB}};
  const Check check = Find(JudgeDaemon(socket, machine, "1.0"), "daemon_devices");
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.found, "device 1 may take 8.0 GiB of NUMA node 1, which has 4.0 GiB");
  EXPECT_NE(check.fix, "");
}

TEST(JudgeDaemon, GpuWithoutAnAgent_IsWarnedOf) {
  SocketFindings socket = GoodSocket();
  v1::GpuInfo* const gpu = socket.daemon->add_gpus();
  gpu->set_device(1);
  gpu->set_agent("serving");
  EXPECT_EQ(Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "daemon_devices").verdict,
            Verdict::kPass);
  gpu->set_agent("given up");
  gpu->set_why("signal 11");
  const Check check = Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "daemon_devices");
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.found, "device 1 has no new memory: its agent is given up, signal 11");
  EXPECT_NE(check.fix, "");
}

TEST(JudgeDaemon, SessionsThatWouldEndWithTheDaemon_AreWarnedOf) {
  SocketFindings socket = GoodSocket();
  EXPECT_EQ(Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "daemon_survival").verdict,
            Verdict::kPass);
  v1::MachineFact* const fact = socket.daemon->add_facts();
  fact->set_name("descriptor store");
  fact->set_value("sessions end with the daemon");
  fact->set_why_not("geminid-holder does not run");
  const Check check = Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "daemon_survival");
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.found, "sessions end with the daemon: geminid-holder does not run");
  EXPECT_NE(check.fix, "");
}

TEST(JudgeDaemon, UnhealthyGpu_IsWarnedOf) {
  SocketFindings socket = GoodSocket();
  v1::GpuInfo* const gpu = socket.daemon->add_gpus();
  gpu->set_agent("serving");
  gpu->set_health("unhealthy");
  gpu->add_health_reasons("Xid 79");
  const Check check = Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "daemon_devices");
  EXPECT_EQ(check.verdict, Verdict::kWarn);
  EXPECT_EQ(check.found, "device 0 takes no new sessions: Xid 79");
  EXPECT_NE(check.fix, "");
}

TEST(JudgeDaemon, MemoryOfAGpu_IsNoMemoryOfTheMachine) {
  SocketFindings socket = GoodSocket();
  v1::DeviceDescription* const device = socket.daemon->add_devices();
  device->set_kind(v1::DEVICE_KIND_CUDA);
  device->set_capacity_bytes(1000 * kGiB);
  device->set_numa_node(0);
  v1::TierLedger* const tier = socket.daemon->mutable_ledger()->add_tiers();
  tier->set_tier(v1::TIER_DEVICE);
  tier->set_device(0);
  tier->set_capacity_bytes(1000 * kGiB);
  MachineFindings machine = GoodMachine();
  machine.machine.nodes = {{0, 64 * kGiB, kGiB}};
  const std::vector<Check> checks = JudgeDaemon(socket, machine, "1.0");
  EXPECT_EQ(Find(checks, "daemon_devices").verdict, Verdict::kPass);
  EXPECT_EQ(Find(checks, "daemon_capacity").verdict, Verdict::kPass);
}

TEST(JudgeMachine, GoodMachine_Passes) {
  for (const Check& check : JudgeMachine(GoodMachine())) {
    EXPECT_EQ(check.verdict, Verdict::kPass) << check.id << ": " << check.found;
    EXPECT_NE(check.found, "") << check.id;
    EXPECT_EQ(check.fix, "") << check.id;
  }
}

TEST(JudgeMachine, EveryLack_HasItsVerdictAndAFix) {
  const absl::Status refused = absl::PermissionDeniedError("no");
  struct Case {
    const char* id;
    Verdict verdict;
    std::function<void(MachineFindings*)> spoil;
  };
  const std::vector<Case> cases = {
      {"memfd_seals", Verdict::kFail, [&](auto* m) { m->sealed_memfd = refused; }},
      {"memfd_noexec_seal", Verdict::kWarn, [&](auto* m) { m->noexec_seal = refused; }},
      {"populate_write", Verdict::kFail, [&](auto* m) { m->populate_write = refused; }},
      {"peer_pidfd", Verdict::kWarn, [&](auto* m) { m->peer_pidfd = refused; }},
      {"peer_pidfd", Verdict::kFail, [&](auto* m) { m->peer_pidfd = m->pidfd_open = refused; }},
      {"io_uring", Verdict::kWarn, [&](auto* m) { m->io_uring = refused; }},
      {"memlock_limit", Verdict::kWarn,
       [](auto* m) {
         m->machine.memlock_limit_bytes = 8 << 20;
         m->nvidia_driver = "570";
       }},
      {"open_files_limit", Verdict::kWarn, [](auto* m) { m->open_files_limit = 1024; }},
      {"open_files_limit", Verdict::kFail, [](auto* m) { m->open_files_limit = 16; }},
      {"memory", Verdict::kWarn, [](auto* m) { m->available_bytes = 1 << 20; }},
      {"memory", Verdict::kFail, [](auto* m) { m->machine.ram_bytes = 0; }},
      {"cgroup_memory_limit", Verdict::kWarn,
       [](auto* m) { m->machine.cgroup_limit_bytes = 64 << 20; }},
      {"huge_pages", Verdict::kWarn, [](auto* m) { m->machine.huge_pages = {}; }},
      {"dev_shm", Verdict::kWarn,
       [](auto* m) {
         m->dev_shm = Space{64 << 20, 64 << 20};
       }},
      {"dev_shm", Verdict::kWarn, [](auto* m) { m->dev_shm.reset(); }},
      {"cpu_features", Verdict::kWarn, [](auto* m) { m->cpu.avx2 = false; }},
      {"temporary_space", Verdict::kWarn,
       [](auto* m) {
         m->temporary_space = Space{1, 1};
       }},
      {"temporary_space", Verdict::kFail, [](auto* m) { m->temporary_space.reset(); }},
  };
  for (const Case& c : cases) {
    MachineFindings machine = GoodMachine();
    c.spoil(&machine);
    const Check check = Find(JudgeMachine(machine), c.id);
    EXPECT_EQ(check.verdict, c.verdict) << c.id << ": " << check.found;
    EXPECT_NE(check.fix, "") << c.id;
  }
}

TEST(JudgeMachine, LockedMemoryLimit_MattersOnlyWhereItBinds) {
  MachineFindings machine = GoodMachine();
  machine.machine.memlock_limit_bytes = 8 << 20;
  EXPECT_EQ(Find(JudgeMachine(machine), "memlock_limit").verdict, Verdict::kPass);  // without a GPU
  machine.nvidia_driver = "570";
  machine.may_lock_memory = true;
  EXPECT_EQ(Find(JudgeMachine(machine), "memlock_limit").verdict, Verdict::kPass);
}

TEST(JudgeDaemon, GoodDaemon_Passes) {
  for (const Check& check : JudgeDaemon(GoodSocket(), GoodMachine(), "1.0")) {
    EXPECT_EQ(check.verdict, Verdict::kPass) << check.id << ": " << check.found;
  }
}

TEST(JudgeDaemon, NoDaemon_IsAWarningAndTheRestIsSkipped) {
  SocketFindings socket;
  socket.path = "/run/s";
  socket.reached = socket.attach_reached = absl::UnavailableError("no daemon");
  const std::vector<Check> checks = JudgeDaemon(socket, GoodMachine(), "1.0");
  EXPECT_EQ(Find(checks, "socket").verdict, Verdict::kWarn);
  EXPECT_THAT(Find(checks, "socket").fix, HasSubstr("geminid --socket /run/s"));
  for (const char* id :
       {"attach_socket", "daemon_version", "daemon_ledger", "daemon_capacity", "daemon_survival"}) {
    EXPECT_EQ(Find(checks, id).verdict, Verdict::kSkip) << id;
  }
}

TEST(JudgeDaemon, SocketOutOfReach_Fails) {
  SocketFindings socket = GoodSocket();
  socket.reached = absl::PermissionDeniedError("no");
  EXPECT_EQ(Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "socket").verdict, Verdict::kFail);
  socket.reached = absl::UnavailableError("not a socket");
  socket.is_socket = false;
  EXPECT_EQ(Find(JudgeDaemon(socket, GoodMachine(), "1.0"), "socket").verdict, Verdict::kFail);
}

TEST(JudgeDaemon, Faults_AreFound) {
  SocketFindings open = GoodSocket();
  open.mode = 0666;
  EXPECT_EQ(Find(JudgeDaemon(open, GoodMachine(), "1.0"), "socket").verdict, Verdict::kWarn);
  EXPECT_EQ(Find(JudgeDaemon(GoodSocket(), GoodMachine(), "2.0"), "daemon_version").verdict,
            Verdict::kWarn);
  SocketFindings silent = GoodSocket();
  silent.daemon = absl::DeadlineExceededError("late");
  EXPECT_EQ(Find(JudgeDaemon(silent, GoodMachine(), "1.0"), "daemon_version").verdict,
            Verdict::kFail);
  SocketFindings half = GoodSocket();
  half.attach_reached = absl::NotFoundError("no");
  EXPECT_EQ(Find(JudgeDaemon(half, GoodMachine(), "1.0"), "attach_socket").verdict, Verdict::kFail);
  SocketFindings broken = GoodSocket();
  broken.daemon->mutable_ledger()->set_adds_up(false);
  EXPECT_EQ(Find(JudgeDaemon(broken, GoodMachine(), "1.0"), "daemon_ledger").verdict,
            Verdict::kFail);
  MachineFindings small = GoodMachine();
  small.machine.cgroup_limit_bytes = 16 * kGiB;
  EXPECT_EQ(Find(JudgeDaemon(GoodSocket(), small, "1.0"), "daemon_capacity").verdict,
            Verdict::kWarn);
}

TEST(ParseCpuFeatures, FlagsLine_IsRead) {
  const CpuFeatures all = ParseCpuFeatures(
      "processor\t: 0\nflags\t\t: fpu avx2 avx512f avx512bw avx512dq avx512vl avx512_bf16 "
      "amx_bf16\nbugs\t\t: none\n");
  EXPECT_TRUE(all.is_x86 && all.avx2 && all.avx512 && all.avx512_bf16 && all.amx_bf16);
  const CpuFeatures some = ParseCpuFeatures("vmx flags\t: avx512f\nflags\t: avx2 avx512f\n");
  EXPECT_TRUE(some.is_x86 && some.avx2);
  EXPECT_FALSE(some.avx512 || some.avx512_bf16 || some.amx_bf16);
  EXPECT_FALSE(ParseCpuFeatures("Features\t: fp asimd\n").is_x86);
}

}  // namespace
}  // namespace geminid::ctl
