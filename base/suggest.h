// "Did you mean": the known word nearest to one that is not known.
#ifndef GEMINID_BASE_SUGGEST_H_
#define GEMINID_BASE_SUGGEST_H_

#include <string>
#include <vector>

namespace geminid::base {

// Insertions, deletions, substitutions and swaps of neighbours that make `a` into `b`.
int EditDistance(const std::string& a, const std::string& b);

// "; did you mean 'socket'?" when a word of `known` is near enough to be meant: those few of which
// `word` is the beginning, or the nearest. Never `word` itself. Else nothing.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& known);

}  // namespace geminid::base

#endif  // GEMINID_BASE_SUGGEST_H_
