-- Idempotency keys. A record tells what was stored with a key, and has an end of its own: a string of
--   mark (27)  hash of the key, the request and the number of its jobs: their ids are 'j_' and it
--   call (8)   who stored it, so that a command which is sent again gets the answer of the first
--   ids        JSON, only where they are others: those of jobs that a deduplication id stood for
local ONCE_CONFLICT = -10
local ONCE_MARK, ONCE_CALL = 27, 8

-- once: the record's name, mark, call, time to live (ms, text), and how many jobs
local function once_key(base, once)
  return base .. 'meta:once:' .. once[1]
end

-- Nil where nothing is known of the key. Else {-10} for one that stands for another request, or {1, ids, replayed '1' or '0'}.
local function once_recall(base, once)
  local record = redis.call('GET', once_key(base, once))
  if not record then
    -- Its time is over; jobs that are still there go on standing for it. All of them: of those that BullMQ refused in part
    -- there is no record either.
    local first = base .. 'j_' .. once[2]
    if redis.call('EXISTS', first) == 0 then return nil end
    for i = 1, once[5] - 1 do
      if redis.call('EXISTS', first .. '-' .. i) == 0 then return nil end
    end
    return { 1, '', '1' }
  end
  if string.sub(record, 1, ONCE_MARK) ~= once[2] then return { ONCE_CONFLICT } end
  local call, ids = string.sub(record, ONCE_MARK + 1, ONCE_MARK + ONCE_CALL), string.sub(record, ONCE_MARK + ONCE_CALL + 1)
  return { 1, ids, call == once[3] and '0' or '1' }
end

-- Keeps what was added; what BullMQ refused in part is not kept. asked: the ids that were made of the key.
local function once_keep(base, once, asked, ids)
  local others = false
  for i, id in ipairs(ids) do
    if type(id) ~= 'string' then return end
    others = others or id ~= asked[i]
  end
  redis.call('SET', once_key(base, once), once[2] .. once[3] .. (others and cjson.encode(ids) or ''), 'PX', once[4])
end
