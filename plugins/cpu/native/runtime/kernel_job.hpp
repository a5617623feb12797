// What a thread sets up once for many kernels, such as the shape of AMX tiles, is there while a KernelJob lives.
// Kernels run within one, and none within another.
#pragma once

#include "kernels/kernel_table.hpp"
#include "runtime/thread_pool.hpp"

namespace specserve {

template <typename S>
class KernelJob {
   public:
    explicit KernelJob(const KernelTable<S>& table) : table_(table) { table_.begin_job(); }
    ~KernelJob() { table_.end_job(); }
    KernelJob(const KernelJob&) = delete;
    KernelJob& operator=(const KernelJob&) = delete;

   private:
    const KernelTable<S>& table_;
};

// `ThreadPool::run` of a job that runs kernels.
template <typename S, typename Job>
void run_kernels(ThreadPool& pool, const KernelTable<S>& table, int max_phases, const Job& job) {
    pool.run(max_phases, [&](ThreadPool::Team& team) {
        KernelJob<S> kernels(table);
        job(team);
    });
}

}  // namespace specserve
