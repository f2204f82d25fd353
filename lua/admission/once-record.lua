-- Idempotency keys. A record remembers what was stored with a key, and has a TTL of its own: a string of
--   mark (27)  hash of the key, the request and the number of its jobs. Their ids are 'j_' and the mark, unless a stem
--              was given
--   call (8)   identifies the call that stored it, so that a resent command gets the first reply
--   ids        JSON, only if they differ from these: ids of a stem, and of jobs found by a deduplication id

local once_record = {}

-- once: the record's name, mark, call, time to live (ms, text), number of jobs, and the stem of their ids or nil
local function once_key(base, once)
  return base .. 'meta:once:' .. once[1]
end

-- The id of one of the jobs, counted from 0.
function once_record.id(once, index, stem)
  return 'j_' .. (stem or once[6] or once[2]) .. (index == 0 and '' or '-' .. index)
end

-- A record without ids stands for the ids made from the mark.
local function once_ids(once, kept)
  if kept ~= '' or not once[6] then return kept end
  local ids = {}
  for i = 1, once[5] do ids[i] = once_record.id(once, i - 1, once[2]) end
  return cjson.encode(ids)
end

-- Nil if the key is unknown. Else {-10} if it was used for another request, or {1, ids, replayed '1' or '0'}.
function once_record.recall(base, once)
  local record = redis.call('GET', once_key(base, once))
  if not record then
    -- The record has expired, but its jobs still prove it if all of them exist. If BullMQ refused some of them, there
    -- was no record either.
    for i = 0, once[5] - 1 do
      if redis.call('EXISTS', base .. once_record.id(once, i)) == 0 then return nil end
    end
    return { 1, '', '1' }
  end
  local MARK, CALL = 27, 8
  if string.sub(record, 1, MARK) ~= once[2] then return { -10 } end
  local call, ids = string.sub(record, MARK + 1, MARK + CALL), string.sub(record, MARK + CALL + 1)
  return { 1, once_ids(once, ids), call == once[3] and '0' or '1' }
end

-- Stores what was added, unless BullMQ refused a part of it. asked: the ids made from the key.
function once_record.keep(base, once, asked, ids)
  local others = once[6] ~= nil
  for i, id in ipairs(ids) do
    if type(id) ~= 'string' then return end
    others = others or id ~= asked[i]
  end
  redis.call('SET', once_key(base, once), once[2] .. once[3] .. (others and cjson.encode(ids) or ''), 'PX', once[4])
end

return once_record
