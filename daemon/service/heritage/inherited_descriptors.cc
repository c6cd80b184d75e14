#include "daemon/service/heritage/inherited_descriptors.h"

#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/memfd.h"

namespace geminid::service {
namespace {

constexpr const char* kKinds[] = {kKeptBooks,       kKeptState,       kKeptClient, kKeptCommit,
                                  kKeptDaemonEvent, kKeptClientEvent, kKeptSocket};
constexpr std::string_view kPool = "pool";
constexpr std::string_view kSlab = "slab";
constexpr std::string_view kPlan = "plan";

std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view prefix) {
  uint64_t number = 0;
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  const std::string digits(text.substr(prefix.size()));
  if (!absl::SimpleAtoi(digits, &number) || absl::StrCat(number) != digits) return std::nullopt;
  return number;
}

using Kinds = std::map<std::string, base::UniqueFd>;
// The descriptors of each client of each session.
using Clients = std::map<shm::SessionId, std::map<uint64_t, Kinds>>;
using Plans = std::map<uint64_t, std::map<uint64_t, base::UniqueFd>>;  // by client and number

// The kind and the client of a name; nullopt: it is not the name of a kind.
std::optional<std::pair<std::string, uint64_t>> SplitKind(const std::string& what) {
  const std::string kind = what.substr(0, what.find('.'));
  if (std::ranges::none_of(kKinds, [&](const char* known) { return kind == known; })) return {};
  if (kind == what) return std::pair(kind, uint64_t{0});
  const std::optional<uint64_t> client = NumberAfter(what, kind + ".");
  if (!client.has_value() || *client == 0 || kind == kKeptCommit) return {};
  return std::pair(kind, *client);
}

struct PlanPlace {
  uint64_t number = 0;
  uint64_t client = 0;
};

// "plan3.2" is plan 3 of the session's third client, number 2; nullopt: the name is no plan's.
std::optional<PlanPlace> SplitPlan(const std::string& what) {
  const std::string plan = what.substr(0, what.find('.'));
  const std::optional<uint64_t> number = NumberAfter(plan, kPlan);
  if (!number.has_value()) return {};
  if (plan == what) return PlanPlace{*number, 0};
  const std::optional<uint64_t> client = NumberAfter(what, plan + ".");
  if (!client.has_value() || *client == 0) return {};
  return PlanPlace{*number, *client};
}

// Chooses the newest client that has all kinds, or else the newest. The commit segment has the
// first client's name, and belongs to all clients.
void ChooseClient(shm::SessionId session, std::map<uint64_t, Kinds>* clients,
                  InheritedDescriptors* sorted) {
  base::UniqueFd commit = std::move((*clients)[0][kKeptCommit]);
  (*clients)[0].erase(kKeptCommit);
  constexpr size_t kOfAClient = std::size(kKinds) - 1;
  auto chosen = std::prev(clients->end());
  for (auto it = clients->rbegin(); it != clients->rend(); ++it) {
    if (it->second.size() < kOfAClient) continue;
    chosen = std::prev(it.base());
    break;
  }
  for (const auto& [client, kinds] : *clients) {
    if (client == chosen->first) continue;
    for (const auto& [kind, fd] : kinds) {
      sorted->needless.push_back(DescriptorName(session, kind, client));
    }
  }
  InheritedDescriptors::OfSession& of = sorted->sessions[session];
  of.which_client = chosen->first;
  of.kinds = std::move(chosen->second);
  if (commit.valid()) of.kinds[kKeptCommit] = std::move(commit);
}

// Takes the plans of the chosen client.
void ChoosePlans(shm::SessionId session, Plans* plans, InheritedDescriptors* sorted) {
  InheritedDescriptors::OfSession& of = sorted->sessions[session];
  for (auto& [client, numbers] : *plans) {
    if (client == of.which_client) {
      of.plans = std::move(numbers);
      continue;
    }
    for (const auto& [number, fd] : numbers) {
      sorted->needless.push_back(PlanName(session, number, client));
    }
  }
}

struct Unsorted {
  Clients clients;
  std::map<shm::SessionId, Plans> plans;
};

// False: a name that this release does not know.
bool SortOne(holder::StoredDescriptor* kept, Unsorted* unsorted, InheritedDescriptors* sorted) {
  const std::string& name = kept->name;
  if (name == kKeptManifest) return sorted->manifest = std::move(kept->fd), true;
  if (name == kKeptNode) return sorted->node = std::move(kept->fd), true;
  const size_t dash = name.find('-');
  if (dash == std::string::npos) return false;
  const std::optional<uint64_t> session = NumberAfter(std::string_view(name).substr(0, dash), "s");
  if (!session.has_value() || *session == 0) return false;
  const std::string what = name.substr(dash + 1);
  const std::optional<std::pair<std::string, uint64_t>> kind = SplitKind(what);
  const std::optional<uint64_t> pool = NumberAfter(what, kPool);
  const std::optional<uint64_t> slab = NumberAfter(what, kSlab);
  const std::optional<PlanPlace> plan = SplitPlan(what);
  if (!kind.has_value() && !pool.has_value() && !slab.has_value() && !plan.has_value()) {
    return false;
  }
  const shm::SessionId id{*session};
  InheritedDescriptors::OfSession& of = sorted->sessions[id];
  of.names.push_back(name);
  if (kind.has_value()) {
    unsorted->clients[id][kind->second][kind->first] = std::move(kept->fd);
  } else if (plan.has_value()) {
    unsorted->plans[id][plan->client][plan->number] = std::move(kept->fd);
  } else if (pool.has_value()) {
    of.pools[shm::PoolId{static_cast<uint32_t>(*pool)}] = std::move(kept->fd);
  } else {
    of.slabs[static_cast<uint32_t>(*slab)] = std::move(kept->fd);
  }
  return true;
}

}  // namespace

std::string DescriptorName(shm::SessionId session, const std::string& what, uint64_t which_client) {
  std::string name = absl::StrCat("s", shm::Value(session), "-", what);
  if (which_client > 0 && what != kKeptCommit) absl::StrAppend(&name, ".", which_client);
  return name;
}

std::string PoolName(shm::SessionId session, shm::PoolId pool) {
  return DescriptorName(session, absl::StrCat(std::string(kPool), shm::Value(pool)));
}

std::string SlabName(shm::SessionId session, uint32_t slab) {
  return DescriptorName(session, absl::StrCat(std::string(kSlab), slab));
}

std::string PlanName(shm::SessionId session, uint64_t number, uint64_t which_client) {
  return DescriptorName(session, absl::StrCat(std::string(kPlan), number), which_client);
}

InheritedDescriptors Sort(std::vector<holder::StoredDescriptor> kept) {
  InheritedDescriptors sorted;
  Unsorted unsorted;
  for (holder::StoredDescriptor& each : kept) {
    if (!SortOne(&each, &unsorted, &sorted)) sorted.needless.push_back(each.name);
  }
  for (auto& [session, of] : unsorted.clients) ChooseClient(session, &of, &sorted);
  for (auto& [session, of] : unsorted.plans) ChoosePlans(session, &of, &sorted);
  return sorted;
}

void GiveUp(holder::DescriptorStore* store, const InheritedDescriptors::OfSession& kept) {
  // The client reads the end of its connection, whoever else has descriptors of it.
  const auto socket = kept.kinds.find(kKeptSocket);
  if (socket != kept.kinds.end()) ::shutdown(socket->second.get(), SHUT_RDWR);
  for (const auto& [id, pool] : kept.pools) base::Revoke(pool).IgnoreError();
  for (const auto& [number, slab] : kept.slabs) base::Revoke(slab).IgnoreError();
  for (const std::string& name : kept.names) store->Remove(name).IgnoreError();
}

void GiveUpAll(holder::DescriptorStore* store, const InheritedDescriptors& kept) {
  for (const auto& [id, session] : kept.sessions) GiveUp(store, session);
  for (const std::string& name : kept.needless) store->Remove(name).IgnoreError();
  store->Remove(kKeptManifest).IgnoreError();
  store->Remove(kKeptNode).IgnoreError();
}

}  // namespace geminid::service
