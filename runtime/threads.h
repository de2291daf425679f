/* threads.h - whether the system will give OpenMP the threads that it is about to be asked for.
 *
 * libgomp ends the process when it cannot make a thread (ulimit -u, a cgroup's pids.max, no address space for the
 * stack). So the threads are made once for trial, with the stacks that libgomp's would have. If they can be had,
 * libgomp makes its own at once: from then on this host thread has them. What nobody can rule out is that libgomp
 * gives some of them back in a region of fewer threads, and that the system is at its limit when it wants them
 * again. */
#ifndef RT_THREADS_H
#define RT_THREADS_H

/* How many of `wanted` threads, the calling one included, a parallel region of the calling thread can have: 1 ..
 * wanted. Free of cost once all of them were there. */
int rt_threads_available(int wanted);

#endif
