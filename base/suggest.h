// "Did you mean": finds the known word nearest to an unknown one.
#ifndef GEMINID_BASE_SUGGEST_H_
#define GEMINID_BASE_SUGGEST_H_

#include <string>
#include <vector>

namespace geminid::base {

// The number of insertions, deletions, substitutions and swaps of neighbours from `a` to `b`.
int EditDistance(const std::string& a, const std::string& b);

// "; did you mean 'socket'?" if a word of `known` is close enough: the few words that begin with
// `word`, or else the nearest one. Never `word` itself. Empty if there is none.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known);

}  // namespace geminid::base

#endif  // GEMINID_BASE_SUGGEST_H_
