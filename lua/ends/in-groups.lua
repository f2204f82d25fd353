local ends = use 'ends/ends'
local exchanged = use 'ends/exchanged'
local quick_answer = use 'ends/quick-answer'
local quick_groups = use 'gate/quick-groups'
local touched = use 'gate/touched'
local wake = use 'gate/wake'
local as_text = use 'redis/as-text'
local delay_clock = use 'redis/delay-clock'

-- Ends jobs where only groups can hold the next ones: the groups choose without the gate. call: as in lua/verbs/exchange.
-- Returns the reply; nil if the gate is needed, and nothing was done.
local function end_in_groups(call)
  call.ids = {}
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do call.ids[#call.ids + 1] = exchanged.argv[at] end
  local q, base = quick_groups.open(call), exchanged.base
  if not q then return nil end
  delay_clock.knows(base, true, q.now)
  for at = ends.FIRST, #exchanged.argv, ends.FIELDS do
    local came = ends.exchange(at, q.redis)
    if came then came[5] = q.score end
  end
  local freed = quick_groups.save(q, call, exchanged.unseen, call.began)
  if freed then wake.one(base) end
  touched.wake()
  local answer = exchanged.last and quick_answer.reply(base, exchanged.results, exchanged.last, q.time)
  -- BullMQ's text takes held jobs for none.
  local held = answer and answer[5] == 'empty' and redis.call('EXISTS', base .. 'prioritized', base .. 'wait') > 0
  if not answer or answer[5] == 'halted' or held then return { 1, as_text.us(q.now), exchanged.results } end
  -- A worker that takes the marker now would find no job.
  if answer[5] == 'empty' and #q.jobs > 0 then redis.call('ZREM', base .. 'marker', '0') end
  return answer
end

return end_in_groups
