#include "daemon/service/keepsakes.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace geminid::service {
namespace {

constexpr const char* kKinds[] = {kKeptBooks,       kKeptState,       kKeptClient, kKeptCommit,
                                  kKeptDaemonEvent, kKeptClientEvent, kKeptSocket};
constexpr std::string_view kPool = "pool";
constexpr std::string_view kSlab = "slab";

std::optional<uint64_t> NumberAfter(std::string_view text, std::string_view prefix) {
  uint64_t number = 0;
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  const std::string digits(text.substr(prefix.size()));
  if (!absl::SimpleAtoi(digits, &number) || absl::StrCat(number) != digits) return std::nullopt;
  return number;
}

using Kinds = std::map<std::string, base::UniqueFd>;
// Of each session, what each of its clients had.
using Clients = std::map<shm::SessionId, std::map<uint64_t, Kinds>>;

// The kind, and whose it is; nothing: it is none.
std::optional<std::pair<std::string, uint64_t>> SplitKind(const std::string& what) {
  const std::string kind = what.substr(0, what.find('.'));
  if (std::ranges::none_of(kKinds, [&](const char* known) { return kind == known; })) return {};
  if (kind == what) return std::pair(kind, uint64_t{0});
  const std::optional<uint64_t> client = NumberAfter(what, kind + ".");
  if (!client.has_value() || *client == 0 || kind == kKeptCommit) return {};
  return std::pair(kind, *client);
}

// Of the newest client that has them all, or else of the newest. The commit segment is the first
// client's by its name, and everybody's.
void ChooseClient(shm::SessionId session, std::map<uint64_t, Kinds>* clients, Keepsakes* sorted) {
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
      sorted->needless.push_back(KeepsakeName(session, kind, client));
    }
  }
  Keepsakes::OfSession& of = sorted->sessions[session];
  of.which_client = chosen->first;
  of.kinds = std::move(chosen->second);
  if (commit.valid()) of.kinds[kKeptCommit] = std::move(commit);
}

// False: a name that this release does not know.
bool SortOne(holder::KeptDescriptor* kept, Clients* clients, Keepsakes* sorted) {
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
  if (!kind.has_value() && !pool.has_value() && !slab.has_value()) return false;
  Keepsakes::OfSession& of = sorted->sessions[shm::SessionId{*session}];
  of.names.push_back(name);
  if (kind.has_value()) {
    (*clients)[shm::SessionId{*session}][kind->second][kind->first] = std::move(kept->fd);
  } else if (pool.has_value()) {
    of.pools[shm::PoolId{static_cast<uint32_t>(*pool)}] = std::move(kept->fd);
  } else {
    of.slabs[static_cast<uint32_t>(*slab)] = std::move(kept->fd);
  }
  return true;
}

}  // namespace

std::string KeepsakeName(shm::SessionId session, const std::string& what, uint64_t which_client) {
  std::string name = absl::StrCat("s", shm::Value(session), "-", what);
  if (which_client > 0 && what != kKeptCommit) absl::StrAppend(&name, ".", which_client);
  return name;
}

std::string PoolName(shm::SessionId session, shm::PoolId pool) {
  return KeepsakeName(session, absl::StrCat(std::string(kPool), shm::Value(pool)));
}

std::string SlabName(shm::SessionId session, uint32_t slab) {
  return KeepsakeName(session, absl::StrCat(std::string(kSlab), slab));
}

Keepsakes Sort(std::vector<holder::KeptDescriptor> kept) {
  Keepsakes sorted;
  Clients clients;
  for (holder::KeptDescriptor& each : kept) {
    if (!SortOne(&each, &clients, &sorted)) sorted.needless.push_back(each.name);
  }
  for (auto& [session, of] : clients) ChooseClient(session, &of, &sorted);
  return sorted;
}

}  // namespace geminid::service
