#include "daemon/service/sessions/session_hub.h"

#include <sys/stat.h>

#include <span>

#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "daemon/os/log.h"
#include "daemon/service/sessions/restorer.h"

namespace geminid::service {
namespace {

absl::StatusOr<uint64_t> SizeOf(const base::UniqueFd& fd) {
  struct stat file = {};
  if (::fstat(fd.get(), &file) != 0) return base::SystemError(errno, "fstat", "retained memory");
  return static_cast<uint64_t>(file.st_size);
}

}  // namespace

SessionHub::SessionHub(const SessionHubOptions& options, NodeRecord node, ManifestFile file,
                       core::Manifest manifest)
    : options_(options),
      node_(std::move(node)),
      in_flight_(options.limits),
      table_(options.engine, std::move(file), std::move(manifest)),
      store_(options.store, &table_),
      plans_(options.plan_memory_bytes, options.limits, &table_, &store_),
      reclaimer_(&table_, &store_, &plans_, &statistics_),
      ends_(&table_, &waker_, &statistics_, &reclaimer_),
      attachments_(options.gpus, &in_flight_, &table_, &store_, &plans_, &ends_, &reclaimer_),
      memory_(&options_, &table_, &store_, &statistics_, &reclaimer_),
      jobs_(&node_, &table_, &waker_, &ends_),
      pump_(&table_, &waker_, &reclaimer_) {}

absl::StatusOr<std::unique_ptr<SessionHub>> SessionHub::Create(const SessionHubOptions& options,
                                                               Shortage* shortage) {
  Shortage own(options.pause);
  holder::DescriptorStore* const store = StoreOrNone(options.store);
  GEMINID_ASSIGN_OR_RETURN(std::vector<holder::StoredDescriptor> listed, store->List());
  InheritedDescriptors kept = Sort(std::move(listed));
  if (kept.manifest.valid()) {
    absl::StatusOr<std::unique_ptr<SessionHub>> hub =
        TakeOver(options, &kept, shortage == nullptr ? &own : shortage);
    if (hub.ok() || !IsDamage(hub.status())) return hub;
    os::Log(os::LogLevel::kError, "the state of an earlier daemon is damaged; its sessions end",
            {{"why", std::string(hub.status().message())}});
  }
  GiveUpAll(store, kept);
  return CreateNew(options);
}

NamedDescriptors SessionHub::NodeDescriptors() const {
  // The manifest comes last: without it nothing else counts.
  return {{kKeptNode, node_.fd().get()}, {kKeptManifest, table_.manifest_fd().get()}};
}

absl::StatusOr<std::unique_ptr<SessionHub>> SessionHub::CreateNew(
    const SessionHubOptions& options) {
  const size_t bytes = core::Manifest::BytesFor(options.chunk_records);
  const uint64_t rounded = base::RoundUpToPage(bytes);
  ManifestFile file;
  GEMINID_ASSIGN_OR_RETURN(file.fd, base::CreateSealedMemfd("geminid-manifest", rounded));
  GEMINID_ASSIGN_OR_RETURN(file.memory, base::Mapping::Map(file.fd, rounded));
  GEMINID_ASSIGN_OR_RETURN(
      core::Manifest manifest,
      core::Manifest::Create(std::span(file.memory.data(), bytes), options.daemon_epoch));
  GEMINID_ASSIGN_OR_RETURN(NodeRecord node, NodeRecord::Create(options.engine));
  (void)node.TakeCrashNote();
  std::unique_ptr<SessionHub> hub(
      new SessionHub(options, std::move(node), std::move(file), std::move(manifest)));
  for (const auto& [name, fd] : hub->NodeDescriptors()) hub->store_.Put(name, fd);
  GEMINID_RETURN_IF_ERROR(hub->waker_.Start());
  GEMINID_RETURN_IF_ERROR(hub->reclaimer_.Start());
  return hub;
}

// Adopts the manifest and the node's record. On an error nothing was taken from `kept`.
absl::StatusOr<std::unique_ptr<SessionHub>> SessionHub::Adopt(const SessionHubOptions& wanted,
                                                              InheritedDescriptors* kept) {
  SessionHubOptions options = wanted;
  GEMINID_ASSIGN_OR_RETURN(NodeRecord node, NodeRecord::Open(kept->node));
  if (options.host_capacity_is_default) node.ReplaceHostCapacity(&options.engine);
  if (options.device_capacities_are_default) node.ReplaceDeviceCapacities(&options.engine);
  GEMINID_ASSIGN_OR_RETURN(const uint64_t bytes, SizeOf(kept->manifest));
  GEMINID_RETURN_IF_ERROR(base::CheckSealed(kept->manifest, bytes));
  ManifestFile file;
  GEMINID_ASSIGN_OR_RETURN(file.memory, base::Mapping::Map(kept->manifest, bytes));
  // The state that is taken over may crash this daemon, too.
  const bool crashed = node.TakeCrashNote();
  GEMINID_ASSIGN_OR_RETURN(
      core::Manifest manifest,
      core::Manifest::Open(std::span(file.memory.data(), bytes), options.daemon_epoch, crashed));
  node.Own(std::move(kept->node));
  file.fd = std::move(kept->manifest);
  return std::unique_ptr<SessionHub>(
      new SessionHub(options, std::move(node), std::move(file), std::move(manifest)));
}

absl::StatusOr<std::unique_ptr<SessionHub>> SessionHub::TakeOver(const SessionHubOptions& options,
                                                                 InheritedDescriptors* kept,
                                                                 Shortage* shortage) {
  const core::Time began = Now();
  std::unique_ptr<SessionHub> hub;
  GEMINID_RETURN_IF_ERROR(shortage->Outlast([&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(hub, Adopt(options, kept));
    return absl::OkStatus();
  }));
  GEMINID_RETURN_IF_ERROR(hub->AdoptSessions(kept, shortage, began));
  return hub;
}

absl::Status SessionHub::AdoptSessions(InheritedDescriptors* kept, Shortage* shortage,
                                       core::Time began) {
  if (node_.IsDrained()) table_.Lock().engine().Drain(true, Now());
  Restorer restorer(&table_, &plans_, &waker_, &in_flight_, StoreOrNone(options_.store));
  absl::Status status = shortage->Outlast([&] { return waker_.Start(); });
  if (status.ok()) status = shortage->Outlast([&] { return reclaimer_.Start(); });
  if (status.ok()) status = restorer.AdoptAll(&kept->sessions, shortage);
  if (!status.ok()) {
    HasServed();  // the manifest is not at fault: the next daemon takes it over
    return status;
  }
  std::vector<core::Outgoing> out;
  status = restorer.Finish(&out);
  if (status.ok()) pump_.ResumeAll(out);
  Destroy(restorer.TakeGarbage());
  GEMINID_RETURN_IF_ERROR(status);
  for (const std::string& name : kept->needless) store_.Remove(name);
  metrics::TakeOverReading reading = {.lost = restorer.lost()};
  size_t chunks = 0;
  {
    const SessionTable::Locked locked = table_.Lock();
    reading.sessions = locked.sessions().size();
    reading.seconds = (Now() - began).seconds();
    statistics_.SetTakeOver(locked, reading);
    chunks = locked.engine().manifest().used_records();
  }
  os::Log(os::LogLevel::kInfo, "took over from an earlier daemon",
          {{"sessions", absl::StrCat(reading.sessions)},
           {"seconds", absl::StrCat(reading.seconds)},
           {"chunks", absl::StrCat(chunks)},
           {"lost_sessions", absl::StrCat(reading.lost)},
           {"epoch", absl::StrCat(table_.epoch())}});
  return absl::OkStatus();
}

void SessionHub::KeepAll() { store_.Refill(NodeDescriptors()); }

std::vector<SessionPtr> SessionHub::AllSessions() {
  const SessionTable::Locked locked = table_.Lock();
  std::vector<SessionPtr> all;
  for (const auto& [id, session] : locked.sessions()) all.push_back(session);
  return all;
}

size_t SessionHub::AttachedSessions() {
  const SessionTable::Locked locked = table_.Lock();
  size_t attached = 0;
  for (const auto& [id, session] : locked.sessions()) attached += session->ended() ? 0 : 1;
  return attached;
}

SessionHubCounters SessionHub::Numbers(const SessionTable::Locked& locked) {
  statistics_.NoteAll(locked);
  return {.counted = statistics_.Counted(locked),
          .take_over = statistics_.take_over(locked),
          .plan_memory_bytes = plans_.memory(locked),
          .allocations = statistics_.allocations(locked)};
}

}  // namespace geminid::service
