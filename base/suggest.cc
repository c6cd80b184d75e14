#include "base/suggest.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace geminid::base {
namespace {

// Longer words are not compared: they come from files, and the cost grows with the product.
constexpr size_t kMaxWord = 64;

// A shorter beginning says nothing, nor does one that more words than kMostLonger have.
constexpr size_t kLeastBeginning = 3;
constexpr size_t kMostLonger = 4;

// A third of the letters may differ.
int Tolerance(const std::string& word) { return static_cast<int>(word.size() + 2) / 3; }

// Known words that begin with `word`, unless too many do.
std::string LongerWords(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() < kLeastBeginning) return "";
  std::string text;
  size_t count = 0;
  for (const std::string& candidate : known) {
    if (candidate.size() <= word.size() || !candidate.starts_with(word)) continue;
    absl::StrAppend(&text, text.empty() ? "; did you mean '" : " or '", candidate, "'");
    if (++count > kMostLonger) return "";
  }
  return text.empty() ? "" : absl::StrCat(text, "?");
}

}  // namespace

int EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) cost[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) cost[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1,
                             cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
      }
    }
  }
  return cost[a.size()][b.size()];
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  if (word.size() > kMaxWord) return "";
  if (std::string longer = LongerWords(word, known); !longer.empty()) return longer;
  const std::string* nearest = nullptr;
  int nearest_distance = Tolerance(word) + 1;
  for (const std::string& candidate : known) {
    const int distance = EditDistance(word, candidate);
    if (distance == 0 || distance >= nearest_distance) continue;
    nearest = &candidate;
    nearest_distance = distance;
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean '", *nearest, "'?");
}

}  // namespace geminid::base
