#include "daemon/planner/retention/residency_draft.h"

#include <algorithm>

namespace geminid::planner {
namespace {

const ItemUse& UseOf(const Problem& problem, const ResidencyDraft& draft, std::uint32_t j) {
  const Item& item = problem.items[draft.item];
  return item.uses[(draft.first_use + j) % item.uses.size()];
}

// Sets the moments from the uses, without prefetch.
ResidencyDraft MakeDraft(const Problem& problem, std::uint32_t item, std::uint32_t first_use,
                         std::uint32_t num_uses) {
  ResidencyDraft draft{.item = item, .first_use = first_use, .num_uses = num_uses};
  draft.first_moment = UseMoment(problem, draft, 0);
  draft.last_moment = UseMoment(problem, draft, num_uses - 1);
  draft.begin = draft.first_moment;
  const ItemUse& last = UseOf(problem, draft, num_uses - 1);
  draft.end = draft.last_moment + (last.free_moment - last.moment);
  return draft;
}

void AppendDraftsOf(const Problem& problem, std::uint32_t index, const Retention& retained,
                    std::vector<ResidencyDraft>& drafts) {
  const Item& item = problem.items[index];
  const auto count = static_cast<std::uint32_t>(item.uses.size());
  const auto is_kept = [&](std::uint32_t k) { return retained[item.first_gap + k % count] != 0; };
  std::uint32_t run_starts = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    if (is_kept(k + count - 1)) continue;  // the gap before this use is retained
    ++run_starts;
    std::uint32_t num_uses = 1;
    while (is_kept(k + num_uses - 1)) ++num_uses;
    drafts.push_back(MakeDraft(problem, index, k, num_uses));
  }
  if (run_starts > 0) return;
  ResidencyDraft draft = MakeDraft(problem, index, 0, count);
  draft.permanent = true;
  draft.begin = 0;
  draft.end = problem.num_moments;
  drafts.push_back(draft);
}

void IsolateOne(const Problem& problem, std::int64_t moment, std::size_t index,
                std::vector<ResidencyDraft>& drafts) {
  if (drafts[index].permanent) {
    std::uint32_t j = 0;  // the last use before `moment`, or the last of all
    while (j + 1 < drafts[index].num_uses && UseMoment(problem, drafts[index], j + 1) < moment) ++j;
    if (UseMoment(problem, drafts[index], 0) >= moment) j = drafts[index].num_uses - 1;
    SplitAfter(problem, j, index, drafts);
  }
  const std::int64_t n = problem.num_moments;
  for (std::int64_t at = moment - n; at <= moment + n; at += n) {
    ResidencyDraft& draft = drafts[index];
    if (at < draft.begin || at >= draft.end) continue;
    if (at > draft.last_moment) {
      draft.end = at;
      return;
    }
    if (at <= draft.first_moment) {
      draft.begin = draft.first_moment;
      draft.limit = StallCause::kSpace;
      if (at < draft.first_moment) return;
    }
    if (at == draft.last_moment) draft.end = at + 1;
    std::uint32_t before = 0;  // uses before the moment
    while (UseMoment(problem, draft, before) < at) ++before;
    const bool used = UseMoment(problem, draft, before) == at;
    if (used && before + 1 < draft.num_uses) SplitAfter(problem, before, index, drafts);
    if (before > 0) SplitAfter(problem, before - 1, index, drafts);
    return;
  }
}

}  // namespace

std::int64_t UseMoment(const Problem& problem, const ResidencyDraft& draft, std::uint32_t j) {
  const std::size_t count = problem.items[draft.item].uses.size();
  const std::int64_t cycle = static_cast<std::int64_t>((draft.first_use + j) / count);
  return UseOf(problem, draft, j).moment + cycle * problem.num_moments;
}

std::size_t GapAfter(const Problem& problem, const ResidencyDraft& draft, std::uint32_t j) {
  const Item& item = problem.items[draft.item];
  return item.first_gap + (draft.first_use + j) % item.uses.size();
}

std::vector<ResidencyDraft> BuildDrafts(const Problem& problem, const Retention& retained) {
  std::vector<ResidencyDraft> drafts;
  for (std::uint32_t i = 0; i < problem.items.size(); ++i) {
    AppendDraftsOf(problem, i, retained, drafts);
  }
  return drafts;
}

void SplitAfter(const Problem& problem, std::uint32_t j, std::size_t index,
                std::vector<ResidencyDraft>& drafts) {
  const ResidencyDraft whole = drafts[index];
  const auto count = static_cast<std::uint32_t>(problem.items[whole.item].uses.size());
  const std::uint32_t next_use = (whole.first_use + j + 1) % count;
  if (whole.permanent) {
    drafts[index] = MakeDraft(problem, whole.item, next_use, whole.num_uses);
    drafts[index].limit = StallCause::kSpace;
    return;
  }
  ResidencyDraft& head = drafts[index];
  head.num_uses = j + 1;
  head.last_moment = UseMoment(problem, head, j);
  head.end = head.last_moment + 1;  // only the last use of a draft can invalidate
  ResidencyDraft tail = MakeDraft(problem, whole.item, next_use, whole.num_uses - j - 1);
  tail.end = tail.last_moment + (whole.end - whole.last_moment);
  tail.limit = StallCause::kSpace;
  drafts.push_back(tail);
}

void Isolate(const Problem& problem, std::int64_t moment, std::vector<ResidencyDraft>& drafts) {
  const std::size_t count = drafts.size();  // drafts that splits append cannot be alive then
  for (std::size_t i = 0; i < count; ++i) IsolateOne(problem, moment, i, drafts);
}

std::vector<ResidencyDraft> SingleUses(const Problem& problem) {
  std::vector<ResidencyDraft> drafts = BuildDrafts(problem, Retention(problem.gaps.size(), 0));
  for (ResidencyDraft& draft : drafts) {
    draft.end = draft.last_moment + 1;
    draft.limit = StallCause::kSpace;
  }
  return drafts;
}

std::uint64_t LoadBytes(const Problem& problem, const std::vector<ResidencyDraft>& drafts) {
  std::uint64_t bytes = 0;
  for (const ResidencyDraft& draft : drafts) {
    if (!draft.permanent) bytes += problem.items[draft.item].transfer_bytes;
  }
  return bytes;
}

}  // namespace geminid::planner
