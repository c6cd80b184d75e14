#include "daemon/service/sessions/session_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "daemon/os/log.h"
#include "daemon/service/heritage/inherited_descriptors.h"
#include "daemon/service/sessions/plan_messages.h"
#include "proto/messages/trace_messages.h"

namespace geminid::service {
namespace {

// A slice takes about ten microseconds.
constexpr size_t kChunksInASlice = 32;

// Approximately the memory that the engine's copy takes.
uint64_t MemoryOf(const core::NextUseTable& table) {
  uint64_t bytes = 0;
  for (const core::NextUseTable::Uses& chunk : table.chunks) {
    bytes += 128 + sizeof(uint32_t) * chunk.moments.size();
  }
  return bytes;
}

PlanNumbers NumbersOf(const v1::Plan& plan) {
  return {plan.transfer_bytes(), plan.transfer_bytes_lower_bound()};
}

// Null: the plan is too large, or no descriptor is left.
std::shared_ptr<const StoredPlan> MakeKept(shm::SessionId session, const v1::Trace& trace,
                                           const v1::Plan& plan) {
  absl::StatusOr<StoredPlan> kept = StoredPlan::Create(session, trace, plan);
  if (kept.ok()) return std::make_shared<const StoredPlan>(*std::move(kept));
  os::Log(os::LogLevel::kWarning, "a plan is not stored: a restart of the daemon loses it",
          {{"session", absl::StrCat(shm::Value(session))},
           {"why", std::string(kept.status().message())}});
  return nullptr;
}

}  // namespace

// Also ends the charge of the plan that was in force before.
absl::Status SessionPlans::PutInForce(const Locked& locked, ClientSession* session,
                                      uint64_t table_bytes, core::PlanUses* uses,
                                      std::shared_ptr<const StoredPlan>* kept) {
  const std::string& tenant = session->spec().tenant;
  uint64_t bytes = table_bytes;
  if (absl::Status status = memory_.Take(tenant, bytes); !status.ok()) {
    limits_->Count(memory_.name(), tenant);
    return status;
  }
  if (*kept != nullptr && memory_.Take(tenant, (*kept)->bytes()).ok()) {
    bytes += (*kept)->bytes();
  } else if (*kept != nullptr) {
    limits_->Count(memory_.name(), tenant);
    kept->reset();
  }
  absl::Status status = locked.engine().BeginPlan(session->id(), uses);
  if (status.ok()) std::swap(session->plan_bytes, bytes);
  memory_.Give(tenant, bytes);
  return status;
}

absl::Status SessionPlans::Set(const SessionPtr& session, const core::NextUseTable& table,
                               const v1::Trace& trace, const v1::Plan& plan) {
  const shm::SessionId id = session->id();
  std::shared_ptr<const StoredPlan> kept = MakeKept(id, trace, plan);
  // `uses` is made without the mutex, and later holds the old plan, which is destroyed without it.
  GEMINID_ASSIGN_OR_RETURN(core::PlanUses uses, core::SortUses(table));
  const uint64_t table_bytes = MemoryOf(table);
  std::shared_ptr<const StoredPlan> older;
  uint64_t older_number = 0, number = 0;
  const std::lock_guard<std::mutex> keeping(session->keeping_plan);
  {
    const Locked locked = table_->Lock();
    if (session->ended()) return absl::AbortedError("the session ended during the call");
    GEMINID_RETURN_IF_ERROR(PutInForce(locked, session.get(), table_bytes, &uses, &kept));
    session->plan = NumbersOf(plan);
    number = ++session->plans;
    older = std::exchange(session->stored_plan, kept);
    older_number = std::exchange(session->stored_plan_number, number);
  }
  size_t placed = 0;
  table_->InSlices([&](const Locked& locked) {
    return locked.engine().PlaceByPlan(id, &placed, kChunksInASlice);
  });
  const std::string name = PlanName(id, number, session->which_client);
  if (kept != nullptr) store_->Put(name, kept->fd().get());
  if (older != nullptr) store_->Remove(PlanName(id, older_number, session->which_client));
  bool ended = false;  // meanwhile, and perhaps before the plan was stored
  {
    const Locked locked = table_->Lock();
    ended = session->ended();
  }
  if (ended && kept != nullptr) store_->Remove(name);
  return absl::OkStatus();
}

void SessionPlans::Load(const Locked& locked, ClientSession* session,
                        std::map<uint64_t, base::UniqueFd> plans,
                        std::vector<std::string>* unused) {
  const shm::SessionId id = session->id();
  for (auto plan = plans.rbegin(); plan != plans.rend(); ++plan) {
    session->plans = std::max(session->plans, plan->first);  // no name is given twice
    const bool wanted = !session->ended() && session->stored_plan == nullptr;
    const absl::Status loaded = wanted ? LoadOne(locked, session, std::move(plan->second))
                                       : absl::CancelledError("there is a newer one");
    if (loaded.ok()) {
      session->stored_plan_number = plan->first;
      continue;
    }
    unused->push_back(PlanName(id, plan->first, session->which_client));
    if (!wanted) continue;
    os::Log(os::LogLevel::kError,
            "the stored plan of a session is dropped; until it makes another, the least recently "
            "used chunk is evicted first",
            {{"session", absl::StrCat(shm::Value(id))}, {"why", std::string(loaded.message())}});
  }
}

absl::Status SessionPlans::LoadOne(const Locked& locked, ClientSession* session,
                                   base::UniqueFd fd) {
  const shm::SessionId id = session->id();
  GEMINID_ASSIGN_OR_RETURN(StoredPlan adopted, StoredPlan::Adopt(std::move(fd)));
  GEMINID_ASSIGN_OR_RETURN(const StoredPlan::Contents contents, adopted.Read(id));
  const auto trace = messages::TraceFromMessage<planner::Trace>(contents.trace);
  core::NextUseTable table = NextUses(trace);
  // The session may have freed some of the chunks since.
  std::erase_if(table.chunks, [&](const core::NextUseTable::Uses& uses) {
    return !locked.engine().FindChunk(id, uses.chunk).has_value();
  });
  if (table.chunks.empty() && contents.trace.chunks_size() > 0) {
    return absl::DataLossError("the session has none of the chunks that it names");
  }
  GEMINID_RETURN_IF_ERROR(locked.engine().SetPlan(id, table));
  session->plan = NumbersOf(contents.plan);
  session->stored_plan = std::make_shared<const StoredPlan>(std::move(adopted));
  session->plan_bytes = MemoryOf(table) + session->stored_plan->bytes();
  memory_.TakeAgain(session->spec().tenant, session->plan_bytes);
  return absl::OkStatus();
}

void SessionPlans::Forget(const Locked&, ClientSession* session) {
  memory_.Give(session->spec().tenant, session->plan_bytes);
  session->plan_bytes = 0;
}

}  // namespace geminid::service
