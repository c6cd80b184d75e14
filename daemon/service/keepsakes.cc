#include "daemon/service/keepsakes.h"

#include <algorithm>
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

// False: a name that this release does not know.
bool SortOne(holder::KeptDescriptor* kept, Keepsakes* sorted) {
  const std::string& name = kept->name;
  if (name == kKeptManifest) return sorted->manifest = std::move(kept->fd), true;
  if (name == kKeptNode) return sorted->node = std::move(kept->fd), true;
  const size_t dash = name.find('-');
  if (dash == std::string::npos) return false;
  const std::optional<uint64_t> session = NumberAfter(std::string_view(name).substr(0, dash), "s");
  if (!session.has_value() || *session == 0) return false;
  const std::string what = name.substr(dash + 1);
  const bool is_kind = std::ranges::any_of(kKinds, [&](const char* kind) { return what == kind; });
  const std::optional<uint64_t> pool = NumberAfter(what, kPool);
  const std::optional<uint64_t> slab = NumberAfter(what, kSlab);
  if (!is_kind && !pool.has_value() && !slab.has_value()) return false;
  Keepsakes::OfSession& of = sorted->sessions[shm::SessionId{*session}];
  of.names.push_back(name);
  if (is_kind) {
    of.kinds[what] = std::move(kept->fd);
  } else if (pool.has_value()) {
    of.pools[shm::PoolId{static_cast<uint32_t>(*pool)}] = std::move(kept->fd);
  } else {
    of.slabs[static_cast<uint32_t>(*slab)] = std::move(kept->fd);
  }
  return true;
}

}  // namespace

std::string KeepsakeName(shm::SessionId session, const std::string& what) {
  return absl::StrCat("s", shm::Value(session), "-", what);
}

std::string PoolName(shm::SessionId session, shm::PoolId pool) {
  return KeepsakeName(session, absl::StrCat(std::string(kPool), shm::Value(pool)));
}

std::string SlabName(shm::SessionId session, uint32_t slab) {
  return KeepsakeName(session, absl::StrCat(std::string(kSlab), slab));
}

Keepsakes Sort(std::vector<holder::KeptDescriptor> kept) {
  Keepsakes sorted;
  for (holder::KeptDescriptor& each : kept) {
    if (!SortOne(&each, &sorted)) sorted.strangers.push_back(each.name);
  }
  return sorted;
}

}  // namespace geminid::service
