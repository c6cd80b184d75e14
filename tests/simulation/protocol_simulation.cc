#include "tests/simulation/protocol_simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/os/log.h"
#include "tests/simulation/protocol_client.h"

namespace geminid::simulation {
namespace {

constexpr int kLongestEnd = 20'000;
constexpr int kMostDeathsInARow = 3;  // so that a step ends

}  // namespace

ProtocolSimulation::ProtocolSimulation(uint32_t seed, Mutant mutant)
    : random_(seed), mutant_(mutant) {
  os::ConfigureLog(os::LogLevel::kError, os::LogFormat::kText);  // a shortage here is no news
  options_.engine.host_capacity_bytes = kHostBytes;
  options_.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, kClients * kArenaBytes)};
  options_.engine.max_sessions = 2 * kClients;
  options_.engine.transfers.tickets_in_flight = static_cast<uint32_t>(1 + Pick(3));
  options_.on_step = [this] { OnDaemonStep(); };
  options_.on_answered = [this] {
    if (!calm_ && Chance(10)) throw Death();
  };
  options_.on_take_over = [this] {
    if (!calm_ && Chance(20)) few_.emplace(static_cast<int>(Pick(2 * kClients)));
  };
  options_.pause = [this](core::Duration) {
    ++counts_.shortages;
    few_.reset();
  };
  options_.repeats_answered = mutant == Mutant::kRepeatedAnswered;
  options_.loses_resends = mutant == Mutant::kLostResend;
  options_.credits_early = mutant == Mutant::kCreditBeforeItsHole;
  calm_ = true;
  MakeDaemon();
  for (int32_t rank = 0; rank < kClients; ++rank) {
    clients_.push_back(std::make_unique<Client>(this, rank));
  }
  MeetSessions();
  calm_ = false;
}

ProtocolSimulation::~ProtocolSimulation() {
  calm_ = true;
  clients_.clear();
}

void ProtocolSimulation::Violate(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void ProtocolSimulation::OnDaemonStep() {
  if (calm_) return;
  if (die_in_ == 0) {
    die_in_ = -1;
    throw Death();
  }
  if (die_in_ > 0) --die_in_;
  if (!starting_ && Chance(20)) clients_[Pick(clients_.size())]->TakeOrReleaseLease();
}

void ProtocolSimulation::MakeDaemon() {
  few_.reset();
  if (daemon_ != nullptr) counts_.evictions += daemon_->evictions();
  daemon_ = std::make_unique<SimulatedDaemon>(options_, &node_);
  const absl::Status started = daemon_->Start();
  few_.reset();
  if (!started.ok()) Violate(absl::StrCat("a daemon did not start: ", started.message()));
}

void ProtocolSimulation::Restart() {
  ++counts_.deaths;
  starting_ = true;
  for (int deaths = 0;; ++deaths) {
    const bool dies = deaths < kMostDeathsInARow && Chance(10);
    die_in_ = dies ? static_cast<int>(Pick(30)) : -1;
    ActWithoutDaemon();
    try {
      MakeDaemon();
      break;
    } catch (const Death&) {
      ++counts_.deaths_starting;
    }
  }
  starting_ = false;
  die_in_ = -1;
  MeetSessions();
}

void ProtocolSimulation::ActWithoutDaemon() {
  if (calm_) return;
  for (uint64_t acts = Chance(20) ? Pick(400) : Pick(20); acts > 0; --acts) {
    clients_[Pick(clients_.size())]->ActAlone();
    ++counts_.acts_without_daemon;
  }
}

// Who was hung up on begins anew.
void ProtocolSimulation::MeetSessions() {
  const bool was_calm = std::exchange(calm_, true);
  for (const auto& client : clients_) {
    if (client->connected() && !client->HungUp()) continue;
    if (client->connected()) {
      if (!holder_lost_) Violate("a session ended although its holder lived");
      ++counts_.sessions_lost;
      client->End();
    }
    client->Connect();
  }
  calm_ = was_calm;
  holder_lost_ = false;
}

// The daemon notices, and has another one keep everything; unless it dies as well.
void ProtocolSimulation::HolderDies() {
  ++counts_.holder_deaths;
  node_.table = holder::DescriptorTable();
  if (Chance(30)) die_in_ = static_cast<int>(Pick(24));
  try {
    daemon_->KeepAll();
    die_in_ = -1;
  } catch (const Death&) {
    // What was not kept is nobody's: the connection ends with its last descriptor.
    holder_lost_ = true;
    Restart();
  }
}

void ProtocolSimulation::CheckMemory() {
  if (node_.PoolBytes() > kHostBytes) Violate("there is more host memory than the node has");
}

void ProtocolSimulation::Step() {
  Client& client = *clients_[Pick(clients_.size())];
  const uint64_t action = Pick(1000);
  if (action < 250) {
    client.Act();
  } else if (action < 450) {
    client.StepPort();
  } else if (action < 700) {
    client.StepLink();
  } else if (action < 970) {
    const shm::SessionId id = client.id();
    (void)Call([&](bool) { return daemon_->Pump(id); });
  } else if (action < 990) {
    (void)Call([&](bool) { return daemon_->Destroy(); });
  } else if (action < 998) {
    Restart();
  } else {
    HolderDies();
  }
  CheckMemory();
}

// Every client has said of all its copies that they are done.
void ProtocolSimulation::CheckLink() {
  for (const shm::Direction direction :
       {shm::Direction::kHostToDevice, shm::Direction::kDeviceToHost}) {
    const core::InFlight flight =
        daemon_->engine().transfers().FlightOf(shm::DeviceIndex{0}, direction);
    if (flight.tickets != 0) Violate("a copy is under way that no client knows");
  }
}

bool ProtocolSimulation::IsIdle() {
  return std::ranges::all_of(clients_, [](const auto& client) { return client->IsIdle(); });
}

void ProtocolSimulation::Finish() {
  if (!violation_.empty()) return;
  calm_ = true;
  const auto settle = [this] {
    bool moves = true;
    for (int i = 0; i < kLongestEnd && (moves || !IsIdle()); ++i) {
      moves = false;
      for (const auto& client : clients_) {
        moves = client->StepPort() || moves;
        client->StepLink();
        moves = daemon_->Pump(client->id()) || moves;
      }
    }
    if (!IsIdle()) Violate("a request was never answered");
  };
  settle();
  if (!violation_.empty()) return;
  for (const auto& client : clients_) {
    client->ReleaseAll();
    client->SaveAll();
  }
  settle();
  for (const auto& client : clients_) client->CheckHomes();
  CheckLink();
  counts_.evictions += daemon_->evictions();
  for (const auto& client : clients_) {
    if (!daemon_->Close(client->id()).ok()) Violate("a session could not be ended");
    client->End();
  }
  while (daemon_->Destroy()) {
  }
  if (!daemon_->engine().ledger().Lines().empty() || !node_.pools.empty() ||
      node_.table.items().size() != 1 || !daemon_->engine().Check().ok()) {
    Violate("something was left behind");
  }
}

}  // namespace geminid::simulation
