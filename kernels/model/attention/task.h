// The unit of work of a thread: one key/value head of one batch entry, with the query heads that
// read this head. Internal to attention.
#ifndef GEMINID_KERNELS_MODEL_ATTENTION_TASK_H_
#define GEMINID_KERNELS_MODEL_ATTENTION_TASK_H_

#include <cstddef>

#include "kernels/model/attention/attention.h"

namespace geminid::kernels {

struct AttentionTask {
  AttentionShape shape;  // of this task
  size_t first_token;    // of the batch entry; first_row is the row of its first query
  size_t first_row;
  size_t first_query;  // columns, as is first_key
  size_t first_key;
  size_t first_lse;

  static size_t Count(const AttentionShape& whole) { return whole.batch * whole.kv_heads; }

  AttentionTask(const AttentionShape& whole, size_t index) : shape(whole) {
    const size_t entry = index / whole.kv_heads;
    const size_t kv_head = index % whole.kv_heads;
    shape.batch = 1;
    shape.heads = whole.heads / whole.kv_heads;
    shape.kv_heads = 1;
    first_token = entry * whole.sequence;
    first_row = entry * whole.queries();
    first_query = kv_head * shape.heads * whole.head_dim;
    first_key = kv_head * whole.head_dim;
    first_lse = (entry * whole.heads + kv_head * shape.heads) * whole.queries();
  }

  template <typename T>
  HeadsView<T> Queries(const HeadsView<T>& view) const {
    return {view.data + first_row * view.token_stride + first_query, view.token_stride};
  }
  template <typename T>
  HeadsView<T> Keys(const HeadsView<T>& view) const {
    return {view.data + first_token * view.token_stride + first_key, view.token_stride};
  }
  template <typename T>
  T* Lse(T* lse) const {
    return lse + first_lse;
  }
  void* Workspace(void* workspace, size_t thread) const {
    return static_cast<char*>(workspace) + thread * AttentionWorkspaceBytes(shape);
  }
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_ATTENTION_TASK_H_
