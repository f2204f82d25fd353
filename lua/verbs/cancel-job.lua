--[[
  Cancels a job: a waiting one fails at once, or is removed; the worker of a running one gets a request to abort it.
  ARGV
    [1]  job id
    [2]  why
    [3]  who, '' if not given
    [4]  failure reason of the job
    [5]  1 if a waiting job is removed instead
  Returns
    failed     it waited, and has failed
    removed    it waited, and is gone
    aborting   it runs: its worker has been notified
    stalled    it runs, but its lock is gone: it fails instead of running again
    ended      it has completed or failed before
    scheduled  it is the next iteration of a scheduler, and stays
    unknown    there is no such job
]]
local cancelled = use 'ends/cancelled'
local redis_now = use 'redis/redis-now'
local history = use 'reports/history'

local base, id = string.sub(KEYS[1], 1, -11), ARGV[1]
local outcome, is_cancelled = cancelled.job(base, id, cancelled.place_of(base, id), {
  reason = ARGV[2], by = ARGV[3], failure = ARGV[4], removes = ARGV[5] == '1',
})
if ARGV[3] ~= '' and is_cancelled then
  history.note(base, redis_now(), 'job', ARGV[3], ARGV[2], cjson.encode({ cancelled = id }), '')
end
return outcome
