// Early return on errors, for functions that return absl::Status or absl::StatusOr.
#ifndef GEMINID_BASE_STATUS_MACROS_H_
#define GEMINID_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define GEMINID_CONCAT_INNER(a, b) a##b
#define GEMINID_CONCAT(a, b) GEMINID_CONCAT_INNER(a, b)

#define GEMINID_RETURN_IF_ERROR(expression)                                             \
  do {                                                                                  \
    if (absl::Status status_of_expression = (expression); !status_of_expression.ok()) { \
      return status_of_expression;                                                      \
    }                                                                                   \
  } while (false)

// GEMINID_ASSIGN_OR_RETURN(auto block, workspace.Allocate(bytes));
#define GEMINID_ASSIGN_OR_RETURN(target, expression) \
  GEMINID_ASSIGN_OR_RETURN_INNER(GEMINID_CONCAT(status_or_, __LINE__), target, expression)
#define GEMINID_ASSIGN_OR_RETURN_INNER(name, target, expression) \
  auto name = (expression);                                      \
  if (!name.ok()) return name.status();                          \
  target = std::move(name).value()

#endif  // GEMINID_BASE_STATUS_MACROS_H_
