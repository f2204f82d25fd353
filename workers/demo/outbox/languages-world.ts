import type { Phrases } from './languages.ts'

export const world: readonly Phrases[] = [
  {
    tag: 'pt',
    names: ['João Conceição', 'Inês Magalhães', 'Antônio Brandão', 'Luísa Simões'],
    cities: ['São Paulo', 'Évora', 'Curitiba'],
    decimal: ',',
    money: 'R$ {n}',
    hello: 'Olá, {name}!',
    bye: 'Um abraço,\na equipe da Linden & Moss',
    order: {
      subject: 'Pedido {order} confirmado',
      intro: 'Obrigado pelo seu pedido de {date}. Estamos preparando:',
      total: 'Total',
    },
    reset: {
      subject: 'Redefinição de senha',
      body: 'Alguém, provavelmente você, pediu uma nova senha. O link vale por 30 minutos:\n{link}\nSe não foi você, ignore esta mensagem.',
    },
    invoice: { subject: 'Fatura {invoice}', body: 'A fatura {invoice} de {amount}, pedido {order}, vence em {due}.' },
    shipped: {
      subject: 'Seu pedido {order} está a caminho',
      body: 'O pacote saiu do nosso depósito e deve chegar a {city} em três dias.\nCódigo de rastreio: {tracking}',
    },
    code: { subject: 'Seu código de acesso', body: '{code} é o seu código. Ele vale por dez minutos.' },
    newsletter: {
      subject: 'Novidades da oficina: carvalho, cerâmica e consertos',
      paragraphs: [
        'A estante de leitura em carvalho que tanta gente pediu está pronta: dobra, fica plana e aguenta um livro de receitas pesado. Cada peça tem o seu desenho de veios.',
        'A Marit passou meses aprendendo um esmalte de cinza. As primeiras sessenta tigelas saíram do forno na quinta-feira, verde-acinzentadas e um pouco irregulares.',
        'Da bancada de consertos: cadeira bamba quase sempre tem junta solta, não quebrada. Vapor, raspar a cola velha e uma noite no grampo.',
        'Você recebe esta carta porque pediu. Um clique no rodapé e ela não chega mais.',
      ],
    },
  },
  {
    tag: 'ja',
    names: ['佐藤 美咲', '鈴木 健太', '髙橋 さくら', '渡邉 直樹'],
    cities: ['京都', '札幌', '福岡'],
    decimal: '.',
    money: '{n} ユーロ',
    hello: '{name} 様',
    bye: '今後ともどうぞよろしくお願いいたします。\nLinden & Moss 一同',
    order: {
      subject: 'ご注文 {order} を承りました',
      intro: '{date} のご注文ありがとうございます。ただいま次の品を準備しております。',
      total: '合計',
    },
    reset: {
      subject: 'パスワード再設定のご案内',
      body: 'パスワード再設定のご依頼を受け付けました。次のリンクは30分間有効です。\n{link}\nお心当たりがない場合は、このメールを破棄してください。',
    },
    invoice: {
      subject: '請求書 {invoice}',
      body: '注文 {order} の請求書 {invoice}（{amount}）のお支払い期限は {due} です。',
    },
    shipped: {
      subject: 'ご注文 {order} を発送しました',
      body: 'お荷物は倉庫を出発し、三日以内に{city}へ届く予定です。\n追跡番号: {tracking}',
    },
    code: { subject: 'サインインコード', body: '{code} がサインインコードです。10分間有効です。' },
    newsletter: {
      subject: '工房だより：秋の灯りと楢の書見台',
      paragraphs: [
        '日が短くなり、工房では二杯目のお茶の前に灯りをともすようになりました。たくさんのご要望をいただいた楢の書見台が完成しました。平らに折りたため、重い料理本もしっかり支えます。',
        '陶工のマリットは夏のあいだ灰釉に取り組みました。最初の六十個の鉢が木曜日に窯から出ました。灰緑色で、少しいびつで、汁物によく合います。',
        '修理台から：ぐらつく椅子は、折れているのではなく、ほぞが緩んでいることがほとんどです。蒸して外し、古い膠を削り、一晩締めておきます。',
        'このお便りはご希望の方にお送りしています。文末のリンクからいつでも停止できます。',
      ],
    },
  },
  {
    tag: 'uk',
    names: ['Олена Шевченко', 'Тарас Їжакевич', 'Ґалина Коваль', 'Юрій Щербак'],
    cities: ['Київ', 'Львів', 'Чернівці'],
    decimal: ',',
    money: '{n} €',
    hello: 'Добрий день, {name}!',
    bye: 'З повагою,\nкоманда Linden & Moss',
    order: {
      subject: 'Замовлення {order} підтверджено',
      intro: 'Дякуємо за замовлення від {date}. Ось що ми пакуємо:',
      total: 'Разом',
    },
    reset: {
      subject: 'Відновлення пароля',
      body: 'Хтось, сподіваємося ви, попросив новий пароль. Посилання діє 30 хвилин:\n{link}\nЯкщо це були не ви, нічого не змінилося.',
    },
    invoice: {
      subject: 'Рахунок {invoice}',
      body: 'Рахунок {invoice} на суму {amount} за замовлення {order} потрібно сплатити до {due}.',
    },
    shipped: {
      subject: 'Замовлення {order} вже в дорозі',
      body: 'Посилка залишила склад і за три дні має бути у місті {city}.\nНомер відстеження: {tracking}',
    },
    code: { subject: 'Код для входу', body: '{code} — ваш код. Він дійсний десять хвилин.' },
    newsletter: {
      subject: 'Осінь у майстерні: дуб, глина і хиткі стільці',
      paragraphs: [
        'Дні коротшають, і світло в майстерні вмикаємо ще до другої чашки чаю. Готова дубова підставка для книжок, про яку ви так часто питали: складається пласко і тримає найтовщу кулінарну книгу.',
        'Маріт усе літо вчилася робити поливу з деревного попелу. Перші шістдесят мисок вийшли з печі в четвер: сіро-зелені, трохи нерівні, саме для борщу.',
        'Зі столу ремонту: хиткий стілець майже завжди має розклеєне, а не зламане з’єднання. Пара, зішкребти старий клей, ніч у струбцині.',
        'Ви отримуєте цього листа, бо просили про нього. Одне натискання внизу — і він більше не прийде.',
      ],
    },
  },
  {
    tag: 'ar',
    names: ['ليلى حدّاد', 'يوسف المنصوري', 'فاطمة الزهراء', 'عمر خليل'],
    cities: ['بيروت', 'الرباط', 'عمّان'],
    decimal: '.',
    money: '{n} €',
    hello: 'مرحبًا {name}،',
    bye: 'مع أطيب التحيات\nفريق Linden & Moss',
    order: {
      subject: 'تم تأكيد طلبك {order}',
      intro: 'شكرًا على طلبك بتاريخ {date}. هذا ما نجهّزه لك:',
      total: 'المجموع',
    },
    reset: {
      subject: 'إعادة تعيين كلمة المرور',
      body: 'طُلب تعيين كلمة مرور جديدة لحسابك. الرابط صالح لمدة 30 دقيقة:\n{link}\nإن لم تكن أنت من طلب ذلك فلا حاجة إلى فعل أي شيء.',
    },
    invoice: {
      subject: 'فاتورة {invoice}',
      body: 'الفاتورة {invoice} بمبلغ {amount} للطلب {order} مستحقة الدفع في {due}.',
    },
    shipped: {
      subject: 'طلبك {order} في الطريق إليك',
      body: 'غادرت شحنتك مستودعنا ومن المتوقع وصولها إلى {city} خلال ثلاثة أيام.\nرقم التتبع: {tracking}',
    },
    code: { subject: 'رمز تسجيل الدخول', body: 'رمزك هو {code}، وهو صالح لعشر دقائق.' },
    newsletter: {
      subject: 'جديد الورشة: خشب البلوط وأوعية من رماد',
      paragraphs: [
        'بدأت الأيام تقصر، وصرنا نضيء المصابيح في الورشة قبل كوب الشاي الثاني. حامل القراءة المصنوع من خشب البلوط صار جاهزًا: يُطوى ويحمل أثقل كتاب طبخ.',
        'أمضت ماريت الصيف تتعلّم طلاءً من رماد الخشب، وخرجت أول ستين وعاءً من الفرن يوم الخميس بلون أخضر رمادي.',
        'من طاولة الإصلاح: الكرسي المهتز وصلته مفكوكة في الغالب لا مكسورة. بخار، ثم كشط الغراء القديم، ثم ليلة كاملة في المشبك.',
        'تصلك هذه الرسالة لأنك طلبتها، ويمكنك إيقافها بنقرة واحدة في أسفلها.',
      ],
    },
  },
  {
    tag: 'zh',
    names: ['王小明', '陳怡君', '李娜', '張偉'],
    cities: ['臺北', '杭州', '成都'],
    decimal: '.',
    money: '{n} 歐元',
    hello: '{name} 您好：',
    bye: '敬祝 安好\nLinden & Moss 團隊',
    order: { subject: '訂單 {order} 已確認', intro: '感謝您於 {date} 訂購，我們正在為您準備：', total: '合計' },
    reset: {
      subject: '重設密碼',
      body: '我們收到了重設密碼的請求，以下連結 30 分鐘內有效：\n{link}\n若非您本人操作，請忽略此信。',
    },
    invoice: { subject: '發票 {invoice}', body: '訂單 {order} 的發票 {invoice}，金額 {amount}，請於 {due} 前付款。' },
    shipped: { subject: '訂單 {order} 已出貨', body: '包裹已離開倉庫，預計三天內送達{city}。\n追蹤號碼：{tracking}' },
    code: { subject: '登入驗證碼', body: '您的驗證碼是 {code}，十分鐘內有效。' },
    newsletter: {
      subject: '工坊來信：秋日燈火與橡木書架 🍂',
      paragraphs: [
        '白天漸短，工坊裡第二杯茶之前就點上了燈。大家期待的橡木閱讀架完成了：可以摺平，放得住厚重的食譜，每一件木紋都不同。',
        '陶藝師 Marit 花了一個夏天學習灰釉。第一批六十個碗星期四出窯，灰綠色，略帶不規則，正好盛湯。',
        '修理台小記：搖晃的椅子多半是榫頭鬆了，而不是斷了。蒸一蒸，刮去舊膠，夾一整夜。',
        '您收到這封信是因為曾經訂閱，信末一鍵即可取消。',
      ],
    },
  },
]
