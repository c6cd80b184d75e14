// Metrics of the memory of tiers and tenants.
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "daemon/metrics/families.h"

namespace geminid::metrics {
namespace {

// False for a tier that the daemon does not have, and for a disk that nobody has used: such a tier
// is left out, not shown with 0 bytes.
bool Exists(const core::AccountTotals& totals) {
  return totals.capacity_bytes > 0 || totals.peak_in_use_bytes > 0;
}

using BytesByTenant = std::map<std::string, uint64_t>;

// The tenants with series of their own: those that hold most. All others are shown as "other".
class Names {
 public:
  explicit Names(const BytesByTenant& held) {
    std::set<std::pair<uint64_t, std::string>, std::greater<>> by_bytes;
    for (const auto& [tenant, bytes] : held) by_bytes.emplace(bytes, tenant);
    for (const auto& [bytes, tenant] : by_bytes) {
      if (shown_.size() < kMaxTenantSeries) shown_.insert(tenant);
    }
  }
  bool Has(const std::string& tenant) const { return shown_.contains(tenant); }
  std::string Of(const std::string& tenant) const { return Has(tenant) ? tenant : "other"; }

 private:
  std::set<std::string> shown_;
};

using SumsByTenant = std::map<std::pair<std::string, core::Account>, uint64_t>;

void AddSums(const Metric& metric, const SumsByTenant& sums, Page* page) {
  for (const auto& [key, bytes] : sums) {
    page->Add(metric, {key.first, TierLabel(key.second), DeviceLabel(key.second)},
              static_cast<double>(bytes));
  }
}

}  // namespace

void AddMemory(const Reading& reading, Page* page) {
  std::map<std::pair<core::Account, shm::ChunkKind>, uint64_t> by_kind;
  for (const auto& [account, totals] : reading.accounts) {
    if (!Exists(totals)) continue;
    const std::string tier = TierLabel(account);
    const std::string device = DeviceLabel(account);
    page->Add(kTierCapacity, {tier, device}, static_cast<double>(totals.capacity_bytes));
    page->Add(kTierPeak, {tier, device}, static_cast<double>(totals.peak_in_use_bytes));
    for (const auto& [state, bytes] :
         {std::pair("in_use", totals.in_use_bytes), std::pair("reserved", totals.reserved_bytes),
          std::pair("free", totals.free_bytes)}) {
      page->Add(kTierBytes, {tier, device, state}, static_cast<double>(bytes));
    }
    for (size_t kind = 1; kind <= kKinds; ++kind) {
      by_kind[{account, static_cast<shm::ChunkKind>(kind)}] = 0;
    }
  }
  for (const core::LedgerLine& line : reading.lines) {
    by_kind[{line.account, line.kind}] += line.bytes;
  }
  for (const auto& [key, bytes] : by_kind) {
    const auto& [account, kind] = key;
    page->Add(kInUse, {TierLabel(account), DeviceLabel(account), shm::Name(kind)},
              static_cast<double>(bytes));
  }
  for (const auto& [tier, times] : reading.allocations) {
    page->Add(kAllocationSeconds, {shm::Name(tier)}, times);
  }
}

void AddTenants(const Reading& reading, Page* page) {
  BytesByTenant held;
  for (const TenantReading& tenant : reading.tenants) held[tenant.tenant] += tenant.charged_bytes;
  const Names names(held);
  SumsByTenant charged;
  for (const TenantReading& tenant : reading.tenants) {
    charged[{names.Of(tenant.tenant), tenant.account}] += tenant.charged_bytes;
    if (!names.Has(tenant.tenant)) continue;
    const LabelValues labels = {tenant.tenant, TierLabel(tenant.account),
                                DeviceLabel(tenant.account)};
    if (tenant.limit_bytes != core::kUnlimited) {
      page->Add(kTenantLimit, labels, static_cast<double>(tenant.limit_bytes));
    }
    if (tenant.guaranteed_bytes > 0) {
      page->Add(kTenantGuaranteed, labels, static_cast<double>(tenant.guaranteed_bytes));
    }
  }
  AddSums(kTenantBytes, charged, page);
  SumsByTenant kept;
  for (const SessionReading& session : reading.sessions) {
    if (session.state != core::SessionState::kKept) continue;
    const std::string name = names.Of(session.tenant);
    kept[{name, core::kHostAccount}] += session.host_bytes;
    if (session.device_bytes > 0) {
      kept[{name, core::DeviceAccount(session.device)}] += session.device_bytes;
    }
  }
  AddSums(kTenantKept, kept, page);
}

}  // namespace geminid::metrics
