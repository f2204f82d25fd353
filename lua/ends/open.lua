local batch_once = use 'ends/batch-once'
local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local job_began = use 'ends/job-began'
local quick_answer = use 'ends/quick-answer'
local wake = use 'gate/wake'
local delay_clock = use 'redis/delay-clock'
local hooked_redis = use 'redis/hooked-redis'

-- Ends jobs where nothing can hold the next ones (ends/quick-path). stored: whether a shape is; unreported: as in
-- ends/quick-answer. Returns the reply.
local function end_open(stored, unreported)
  delay_clock.knows(exchanged.base, stored, false)
  if not stored then unreported = '-1' end
  -- When the first of them started, if that is to be recorded.
  local began, came = unreported ~= '-1' and job_began(exchanged.base, exchanged.argv[ends.FIRST]), 0
  local once = exchanged.wanted > 1 and hooked_redis(redis, batch_once.handlers(exchanged.base)) or redis
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do
    if ends.exchange(at, once) then came = came + 1 end
  end
  wake.touched()
  if exchanged.repeated then unreported = '-1' end
  if unreported == '-1' and came == exchanged.wanted then return { 1, '', exchanged.results } end
  local time = quick_answer.note(exchanged.base, unreported, came, began)
  return exchanged.last and quick_answer.reply(exchanged.base, exchanged.results, exchanged.last, time) or { 1, '', exchanged.results }
end

return end_open
