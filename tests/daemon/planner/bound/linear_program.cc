#include "tests/daemon/planner/bound/linear_program.h"

#include <glpk.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "daemon/planner/retention/retention.h"

namespace geminid::planner {
namespace {

// GLPK counts rows, columns and array entries from 1.
class Program {
 public:
  explicit Program(const Problem& problem) : problem_(problem), program_(glp_create_prob()) {
    // The solver's tolerances are absolute: the largest chunk is the unit of all bytes.
    for (const Item& item : problem.items) {
      unit_ = std::max(unit_, static_cast<double>(item.extent_bytes));
    }
    glp_term_out(GLP_OFF);
    glp_set_obj_dir(program_, GLP_MAX);
    AddMoments();
    for (const Gap& gap : problem.gaps) AddGap(gap);
  }
  ~Program() { glp_delete_prob(program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // The most bytes that can be saved; negative if the solver gave up.
  double Solve(Gaps gaps) {
    if (glp_get_num_cols(program_) == 0) return 0;
    if (glp_simplex(program_, nullptr) != 0 || glp_get_status(program_) != GLP_OPT) return -1;
    if (gaps == Gaps::kFractional) return unit_ * glp_get_obj_val(program_);
    for (int column = 1; column <= glp_get_num_cols(program_); ++column) {
      glp_set_col_kind(program_, column, GLP_BV);
    }
    if (glp_intopt(program_, nullptr) != 0 || glp_mip_status(program_) != GLP_OPT) return -1;
    return unit_ * glp_mip_obj_val(program_);
  }

 private:
  void AddMoments() {
    const std::vector<std::int64_t> room = FreeBytesForGaps(problem_);
    glp_add_rows(program_, static_cast<int>(room.size()));
    for (std::size_t t = 0; t < room.size(); ++t) {
      glp_set_row_bnds(program_, static_cast<int>(t) + 1, GLP_UP, 0,
                       static_cast<double>(room[t]) / unit_);
    }
  }

  void AddGap(const Gap& gap) {
    if (!gap.valued || gap.last < gap.first) return;
    const Item& item = problem_.items[gap.item];
    const int column = glp_add_cols(program_, 1);
    glp_set_col_bnds(program_, column, GLP_DB, 0, 1);
    glp_set_obj_coef(program_, column, static_cast<double>(item.transfer_bytes) / unit_);
    std::vector<int> rows = {0};
    std::vector<double> bytes = {0};
    for (std::int64_t t = gap.first; t <= gap.last; ++t) {
      rows.push_back(static_cast<int>(t % problem_.num_moments) + 1);
      bytes.push_back(static_cast<double>(item.extent_bytes) / unit_);
    }
    glp_set_mat_col(program_, column, static_cast<int>(rows.size()) - 1, rows.data(), bytes.data());
  }

  const Problem& problem_;
  glp_prob* program_;
  double unit_ = 1;
};

}  // namespace

double ProgramLeastBytes(const Problem& problem, Gaps gaps) {
  // Every plan has these loads: gaps without value, and no load in valued gaps without interior.
  Retention retained = RetainAdjacent(problem);
  const auto most = static_cast<double>(LoadBytes(problem, retained));
  const double saved = Program(problem).Solve(gaps);
  return saved < 0 ? -1 : most - saved;
}

}  // namespace geminid::planner
