local move_to_active = use 'bullmq/moveToActive'
local departure = use 'gate/departure'
local grants = use 'gate/grants'
local as_text = use 'redis/as-text'

-- Starts jobs in free places, behind the gate: BullMQ's moveToActive, once for each. call: as in gate/departure; asked: the
-- number of places; timestamp and options: of BullMQ's script. Returns the reply of gate/departure.
local function start(call, asked, timestamp, options)
  local d = departure.open(call)
  if d.lost then return { -1, as_text.us(d.now) } end
  if not d.shape and not call.allows_unshaped then
    d.stop = 'unshaped'
    return departure.reply(d, 0, '')
  end
  if departure.remembers(d) and grants.may_be_kept(call.base, call.grant) and departure.replay(d) then return departure.reply_again(d, 0) end
  local keys, args = move_to_active.keys(call.base), { call.base, timestamp, options }
  while #d.granted < asked and departure.take(d, move_to_active.run(d.gate.redis, keys, args)) do end
  local asks = departure.settle(d, asked)
  departure.save(d)
  departure.remember(d)
  return departure.reply(d, 0, asks)
end

return start
